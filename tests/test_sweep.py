"""Sweeps on a real Ray: whatever dies, every trial ends as if nothing had happened, and none is run twice."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from nfdrl import cli
from nfdrl.errors import NfdrlError
from nfdrl.sweeps.driver import Place, check_room, run_sweep
from nfdrl.sweeps.trial import Resources, Trial

pytestmark = pytest.mark.xdist_group("ray")  # one Ray at a time

TESTS = Path(__file__).parent
PATH = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])  # where workers find the environment
SPEC = """
methods = ["dqn", "c51[atoms=13]"]
seeds = 2
steps = 1_200
evaluate = 3
checkpoint_every = 300
order = ["env"]
set.learning_starts = 100
set.report_every = 100
set.torso.mlp = [16]
envs = ["CartPole-v1", "gated_env:Gated-v0"]
"""
TRIALS = [
    f"{env}/{method}/seed-{seed}"
    for env in ("CartPole-v1", "gated_env-Gated-v0")
    for method in ("dqn", "c51-atoms=13")
    for seed in (0, 1)
]
GATED = TRIALS[4:]
LIMIT = 600.0  # seconds that nothing here should take


class Driver:
    """`nfdrl sweep` in a process of its own, and the gate before which the trials of an environment wait."""

    def __init__(self, folder, *words, closed=False):
        self.out, self.gate = folder / "out", folder / "gate"
        (folder / "spec.toml").write_text(SPEC)
        if closed:
            self.gate.touch()
        env = os.environ | {"PYTHONPATH": PATH, "NFDRL_GATE": str(self.gate), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "nfdrl", "sweep", str(folder / "spec.toml"), "--out", str(self.out), *words]
        if "--address" not in words:
            command += ["--cpus", "2"]
        self.process = subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def waiting(self, but=()):
        """The next two trials that have come to the gate, with the processes that run them."""
        return until(lambda: len(found := self._at_the_gate(but)) == 2 and found, self)

    def _at_the_gate(self, but):
        found = {}
        for name in set(GATED) - set(but):
            lock = self.out / name / ".lock"
            if (self.out / name / "checkpoints" / "step-000000000600").exists() and lock.exists():
                found[name] = json.loads(lock.read_text())["pid"]
        return found

    def finish(self):
        """Open the gate; what the driver returned and said in the end."""
        self.gate.unlink(missing_ok=True)
        said, _ = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, said


def until(found, driver=None):
    """Wait for something; the driver must not end before."""
    given_up = time.monotonic() + LIMIT
    while time.monotonic() < given_up:
        if value := found():
            return value
        assert driver is None or driver.process.poll() is None, driver.process.stdout.read()
        time.sleep(0.05)
    pytest.fail("waited in vain")


def gone(pid):
    """Whether a process has ended; one that nobody has waited for counts."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def results(out):
    """All that must not depend on what happened on the way: weights, metrics without the clock, evaluations."""
    found = {}
    for name in TRIALS:
        folder = out / name
        with (folder / "metrics.csv").open(newline="") as file:
            rows = [{key: row[key] for key in row if key != "steps_per_second"} for row in csv.DictReader(file)]
        weights = (folder / "checkpoints" / "step-000000001200" / "weights.safetensors").read_bytes()
        evaluation = json.loads((folder / "metrics.json").read_text())["evaluation"]
        found[name] = weights, rows, evaluation
    return found


def written(out):
    """When each finished trial was."""
    found = {name: out / name / "result.json" for name in TRIALS}
    return {name: path.stat().st_mtime_ns for name, path in found.items() if path.exists()}


def resumed(out):
    """At which steps each trial was resumed."""
    found = {name: json.loads((out / name / "result.json").read_text())["result"]["resumed"] for name in TRIALS}
    return {name: steps for name, steps in found.items() if steps}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """A sweep that nothing disturbs."""
    with Driver(tmp_path_factory.mktemp("undisturbed")) as driver:
        code, said = driver.finish()
    assert code == 0, said
    return driver.out


@pytest.fixture(scope="module")
def undisturbed(sweep):
    return results(sweep)


def test_every_trial_ends_with_a_result_a_row_and_a_place_in_the_report(sweep, undisturbed, tmp_path):
    assert resumed(sweep) == {}
    with (sweep / "sweep.csv").open(newline="") as file:
        rows = {row["trial"]: row for row in csv.DictReader(file)}
    assert sorted(rows) == sorted(TRIALS)
    for name, row in rows.items():
        assert row["status"] == "done"
        assert float(row["mean"]) == undisturbed[name][2]["mean"]
    assert cli.main(["report", str(sweep), "--out", str(tmp_path)]) == 0
    with (tmp_path / "report.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == len(TRIALS)


def test_a_trial_is_the_run_that_train_would_make(undisturbed, tmp_path):
    words = ["--set", "learning_starts=100", "report_every=100", "torso.mlp=(16,)", "--evaluate", "3"]
    words += ["--steps", "1200", "--checkpoint-every", "300", "--seed", "1", "--no-progress"]
    run = [sys.executable, "-m", "nfdrl", "train", "--method", "dqn", "--env", "CartPole-v1", "--out", str(tmp_path)]
    subprocess.run([*run, *words], check=True, capture_output=True)
    weights = (tmp_path / "checkpoints" / "step-000000001200" / "weights.safetensors").read_bytes()
    assert weights == undisturbed["CartPole-v1/dqn/seed-1"][0]


def test_a_killed_worker_is_replaced_and_its_trial_ends_as_if_nothing_had_happened(undisturbed, tmp_path):
    with Driver(tmp_path, closed=True) as driver:
        victim, pid = next(iter(driver.waiting().items()))
        os.kill(pid, signal.SIGKILL)
        code, said = driver.finish()
    assert code == 0, said
    assert resumed(driver.out) == {victim: [600]}
    assert results(driver.out) == undisturbed


def test_the_same_command_continues_after_its_driver_has_ended(undisturbed, tmp_path):
    cut, done = {}, {}
    for ending, ended in ((signal.SIGKILL, 4), (signal.SIGINT, 6)):
        with Driver(tmp_path, closed=True) as driver:
            stopped = driver.waiting(but=cut)
            if ending == signal.SIGKILL:
                with Driver(tmp_path, closed=True) as second:
                    code, said = second.process.wait(LIMIT), second.process.stdout.read()
                    assert code == 2
                    assert f"is in use by process {driver.process.pid} " in said
                    assert len(said.splitlines()) == 1
            until(lambda: len(written(driver.out)) == ended, driver)  # noqa: B023
            driver.process.send_signal(ending)
            code = driver.process.wait(LIMIT)
            if ending == signal.SIGINT:
                assert code == 130
                last = driver.process.stdout.read().splitlines()[-1]
                assert last == "nfdrl: stopped with 6 of 8 trials done; the same command continues"
            assert done.items() <= written(driver.out).items()
            until(lambda: all(map(gone, stopped.values())))  # noqa: B023
        cut, done = cut | stopped, written(driver.out)
    with Driver(tmp_path) as last:
        code, said = last.finish()
    assert code == 0, said
    assert resumed(last.out) == {name: [600] for name in cut}
    assert done.items() <= written(last.out).items()
    assert results(last.out) == undisturbed


@contextmanager
def head(monkeypatch, tmp_path, **size):
    """The first machine of a Ray of its own, on this one."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("NFDRL_GATE", str(tmp_path / "gate"))
    monkeypatch.setenv("PYTHONPATH", PATH)
    made = Cluster(
        initialize_head=True, head_node_args={"object_store_memory": 100 << 20, "include_dashboard": False, **size}
    )
    yield made
    made.shutdown()


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    """A Ray of two machines with a core each."""
    with head(monkeypatch, tmp_path, num_cpus=1) as made:
        yield made, made.add_node(num_cpus=1, object_store_memory=100 << 20)


def test_a_lost_machine_loses_nothing_and_repeats_nothing(cluster, undisturbed, tmp_path):
    ray, second = cluster
    with Driver(tmp_path, "--address", ray.address, closed=True) as driver:
        stopped = driver.waiting()
        ray.remove_node(second, allow_graceful=False)
        (lost,) = until(lambda: [name for name, pid in stopped.items() if gone(pid)], driver)
        code, said = driver.finish()
    assert code == 0, said
    assert resumed(driver.out) == {lost: [600]}
    assert results(driver.out) == undisturbed


@dataclass(frozen=True)
class Probe(Trial):
    """A trial that says what it was given, and when."""

    work = 1

    def settings(self):
        return {}

    def begun(self, out):  # noqa: ARG002
        return None

    def memory(self):
        return 0

    def run(self, out, resources, *, force):  # noqa: ARG002
        begun = time.time()
        time.sleep(0.5)
        found = {"threads": torch.get_num_threads(), "device": resources.device, "time": (begun, time.time())}
        return found | {"gpus": os.environ.get("CUDA_VISIBLE_DEVICES")}


class Listener(nullcontext):
    """What a driver tells, kept."""

    def __init__(self):
        super().__init__()
        self.results = []

    def end(self, trial, outcome, *, earlier=False):  # noqa: ARG002
        self.results.append(outcome["result"])

    def tick(self):
        pass


def test_trials_get_what_the_spec_declares_and_wait_for_it(monkeypatch, tmp_path):
    probes = [Probe(f"probe-{seed}", "dqn", "x", seed, ()) for seed in range(3)]
    with head(monkeypatch, tmp_path, num_cpus=2, num_gpus=1, memory=3 << 30) as made:
        place = Place(made.address)
        for resources, threads, device, gpus in (
            (Resources(cpus=0.5, memory_gb=2), 1, "cpu", None),
            (Resources(cpus=2, gpus=0.25, memory_gb=2), 2, "cuda", "0"),
        ):
            told = Listener()
            (tmp_path / device).mkdir()
            run_sweep(probes, tmp_path / device, resources, place, told)
            found = {(one["threads"], one["device"], one["gpus"]) for one in told.results}
            assert found == {(threads, device, gpus)}
            times = sorted(one["time"] for one in told.results)
            assert len(times) == 3
            assert all(ended <= begun for (_, ended), (begun, _) in pairwise(times))
        with place.open() as ray:
            check_room(ray, [(probes[0], 2 << 30)], Resources(cpus=2, gpus=1), Place())
            for resources, memory, said in (
                (Resources(cpus=3), 0, "needs 3 cores, and no machine has more than 2 cores: make resources.cpus"),
                (Resources(gpus=2), 0, "needs 2 GPUs, and no machine has more than 1 GPUs: make resources.gpus"),
                (Resources(), 4 << 30, "needs 4.29 GB of memory, and no machine has more than 3.22 GB of memory"),
            ):
                with pytest.raises(NfdrlError, match=f"^probe-0 {said}"):
                    check_room(ray, [(probes[0], memory)], resources, Place())
                check_room(ray, [(probes[0], memory)], resources, place)  # which may grow
            with pytest.raises(KeyboardInterrupt):  # Ray's own handler would end the process
                signal.raise_signal(signal.SIGTERM)


def test_a_trial_that_raises_is_listed_and_stops_no_other(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", PATH)
    spec, out = tmp_path / "spec.toml", tmp_path / "out"
    envs = 'envs = ["gated_env:Gated-v0[at=50,fails=true]", "gated_env:Gated-v0"]'
    text = SPEC.replace("1_200", "200").replace('envs = ["CartPole-v1", "gated_env:Gated-v0"]', envs)
    spec.write_text(text.replace("seeds = 2", "seeds = 1"))
    command = [sys.executable, "-m", "nfdrl", "sweep", str(spec), "--out", str(out), "--cpus", "2"]
    done = subprocess.run([*command, "--only", "*/dqn/*"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "1 of 2 trials done" in done.stdout
    assert "nfdrl: trials to run: 2\n" in done.stderr
    assert not list(out.glob("*/c51-atoms=13"))
    failure = json.loads((out / "gated_env-Gated-v0-at=50-fails=true/dqn/seed-0/failed.json").read_text())
    assert "this environment breaks" in failure["error"]
    assert "gated_env.py" in failure["traceback"]
    assert f"failed: {failure['trial']}: {failure['error']}" in done.stderr
    spec.write_text(spec.read_text().replace("seeds = 1", "seeds = 1\nset.batch_size = 32"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2  # the finished one has other settings
    assert "train.batch_size of gated_env-Gated-v0" in done.stderr
