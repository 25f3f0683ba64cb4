"""How fast the page is, in a real browser: opening a file, loading curves, drawing a live agent, and its memory.

Usage: `python benchmarks/page.py --minutes 10 --out results/bench/page.json`, on Linux with Chromium and `nfdrl[test]`.
A file of 2,000 steps with 18 actions is opened; ten runs of 10,000 rows are loaded; an agent with four actions plays
live while the drawings of its laws are counted, and the memory of server and tab is read once a minute.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np
import torch
from playwright.sync_api import sync_playwright

from nfdrl.agent import Agent
from nfdrl.laws import METHODS
from nfdrl.reports import provenance
from nfdrl.viewer.document import html
from nfdrl.viewer.messages import pack
from nfdrl.viewer.packing import pack_laws
from nfdrl.viewer.schema import AgentCard, Document, Episode, RunCard

STEPS, ACTIONS, RUNS, ROWS = 2_000, 18, 10, 10_000
READY = "() => document.querySelector('[data-step]') && performance.now()"
COUNT = """() => {
  window.drawn = 0;
  const curve = document.querySelector('.law[role=group] .density .curve');
  new MutationObserver(() => window.drawn++).observe(curve, { attributes: true, attributeFilter: ['d'] });
}"""


def document() -> Document:
    """A file as large as an Atari game's: the laws of an untrained head at random features."""
    torch.manual_seed(0)
    with torch.no_grad():
        laws = pack_laws(METHODS["nfdrl-s"].head(64, ACTIONS)(3 * torch.randn(STEPS, 64)))
    card = RunCard("0", "bench", "nfdrl-s", "NFDRL-S", "#0072B2", "bench", 0, True)
    agent = AgentCard(card, 0, "mean", 0.99, [f"action {k}" for k in range(ACTIONS)], None, 60.0, None)
    taken = np.random.default_rng(0).integers(ACTIONS, size=STEPS).tolist()
    zeros = pack(np.zeros(STEPS))
    episode = Episode("0", 0, "mean", "terminated", taken, zeros, zeros, None, laws, None)
    return Document("bench", "", [card], [agent], [episode], [], [], [], [])


def write_runs(folder: Path, env: str) -> None:
    """An agent to play, and runs with long metrics."""
    Agent("nfdrl-s", env).save(folder / "agent")
    config = (folder / "agent" / "config.json").read_text()
    names = "step,updates,episodes,episode_return,episode_length,loss,epsilon,learning_rate,steps_per_second,skipped"
    rng = np.random.default_rng(0)
    for k in range(RUNS):
        run = folder / f"run-{k}"
        run.mkdir()
        (run / "config.json").write_text(config)
        values = rng.normal(size=(ROWS, 9)).cumsum(0)
        lines = [f"{1_000 * (t + 1)}," + ",".join(map(repr, row)) for t, row in enumerate(values.tolist())]
        (run / "metrics.csv").write_text("\n".join([names, *lines]) + "\n")


@contextmanager
def server(folder: Path):
    """The live server and its address."""
    words = [sys.executable, "-m", "nfdrl", "watch", str(folder), "--port", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        yield process, re.search(r"http://\S+", process.stdout.readline().decode())[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def opening(browser, path: Path, rounds: int) -> list[float]:
    """Seconds from navigation until the first laws are drawn."""
    found = []
    for _ in range(rounds):
        page = browser.new_page()
        page.goto(path.as_uri())
        found.append(page.wait_for_function(READY).json_value() / 1e3)
        page.close()
    return found


def loading(browser, address: str, rounds: int) -> list[float]:
    """Seconds from navigation until the curves of all runs are drawn."""
    found = []
    for _ in range(rounds):
        page = browser.new_page()
        page.goto(address + "#train")
        drawn = f"() => document.querySelectorAll('.u-legend .u-series').length > {RUNS} && performance.now()"
        found.append(page.wait_for_function(drawn, timeout=120_000).json_value() / 1e3)
        page.close()
    return found


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.search(r"VmRSS:\s+(\d+)", status)[1])


def playing(browser, process, address: str, minutes: float) -> dict[str, object]:
    """Drawings per second of an agent that plays, and the memory of server and tab once a minute."""
    page = browser.new_page()
    tab = page.context.new_cdp_session(page)
    page.goto(address + "#play")
    page.wait_for_selector("[data-step]", timeout=120_000)
    page.evaluate(COUNT)
    rates, memory = [], []
    for _ in range(max(1, round(minutes))):
        before, begun = page.evaluate("() => window.drawn"), time.perf_counter()
        page.wait_for_timeout(60_000 if minutes >= 1 else 10_000)
        rates.append((page.evaluate("() => window.drawn") - before) / (time.perf_counter() - begun))
        tab.send("HeapProfiler.collectGarbage")
        heap = tab.send("Runtime.getHeapUsage")["usedSize"]
        memory.append({"server": resident(process.pid), "tab": heap})
        print(f"{rates[-1]:.1f} drawings per second, {memory[-1]}", flush=True)
    page.close()
    return {"drawings_per_second": rates, "memory": memory}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="how long the agent plays")
    parser.add_argument("--rounds", type=int, default=5, help="how often the file and the curves are opened")
    parser.add_argument("--env", default="LunarLander-v3", help="what the agent plays; it has four actions")
    parser.add_argument("--out", type=Path, default=Path("out/bench/page.json"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder, law = Path(name) / "runs", Path(name) / "law.html"
        folder.mkdir()
        write_runs(folder, given.env)
        law.write_text(html(document()))
        chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        opened = opening(browser, law, given.rounds)
        with server(folder) as (process, address):
            loaded = loading(browser, address, given.rounds)
            played = playing(browser, process, address, given.minutes)
        size = law.stat().st_size
        browser.close()
    found = {
        "law_html": {"bytes": size, "seconds": opened, "median": median(opened)},
        "curves": {"runs": RUNS, "rows": ROWS, "seconds": loaded, "median": median(loaded)},
        "live": played,
    }
    print(json.dumps(found, indent=2))
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps({**provenance(f"python {' '.join(sys.argv)}"), **found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
