"""How fast the page is, in a real browser: opening a file, loading curves, drawing a live agent, and its memory.

Usage: `python benchmarks/page.py --out results/bench/page.json`, on Linux with Chromium and `nfdrl[test]`; 12 minutes.
A file of 2,000 steps with 18 actions is opened; ten runs of 10,000 rows are loaded; an agent plays CartPole live while
the drawings of its laws are counted and the memory of server and tab is read once a minute; then one with four actions.
Speeds need a machine that does nothing else; `--memory` measures the memory alone, which does not.
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
MEASURED = ("server", "tab", "tab_process")  # whose memory
ENVS = {"CartPole-v1": "CartPole", "LunarLander-v3": "LunarLander, four actions"}  # what the agents play
Target = dict[str, str | float | bool]
# What is aimed at: seconds to open and to load, drawings per second, growth of memory.
OPEN, LOAD, DRAW, GROW = 1.0, 2.0, 30.0, 0.05
READY = "() => document.querySelector('[data-step]') && performance.now()"
# Drawings of one law, and the milliseconds between those of one episode: between two episodes the page waits.
COUNT = """() => {
  [window.drawn, window.spent] = [0, 0];
  let [before, last] = [-1, 0];
  const curve = document.querySelector('.law[role=group] .density .curve');
  new MutationObserver(() => {
    const [step, now] = [Number(document.querySelector('[data-step]').dataset.step), performance.now()];
    if (before >= 0 && step > before) [window.drawn, window.spent] = [window.drawn + 1, window.spent + now - last];
    [before, last] = [step, now];
  }).observe(curve, { attributes: true, attributeFilter: ['d'] });
}"""
SINCE = "() => { const found = [drawn, spent]; [window.drawn, window.spent] = [0, 0]; return found; }"


def document() -> Document:
    """A file as large as an Atari game's: the laws of an untrained head at random features."""
    torch.manual_seed(0)
    with torch.no_grad():
        laws = pack_laws(METHODS["nfdrl-s"].head(64, ACTIONS)(3 * torch.randn(STEPS, 64)))
    card = RunCard("0", "bench", "nfdrl-s", "NFDRL-S", "#0072B2", "bench", 0, "", True)
    agent = AgentCard(card, 0, "mean", 0.99, [f"action {k}" for k in range(ACTIONS)], None, 60.0, None)
    taken = np.random.default_rng(0).integers(ACTIONS, size=STEPS).tolist()
    zeros = pack(np.zeros(STEPS))
    episode = Episode("0", 0, "mean", "terminated", taken, zeros, zeros, None, laws, None)
    return Document("bench", "", [card], [agent], [episode], [], [], [], [])


def write_runs(folder: Path) -> None:
    """Agents to play, and runs with long metrics."""
    for env in ENVS:
        Agent("nfdrl", env).save(folder / f"agent-{env}")
    config = (folder / "agent-CartPole-v1" / "config.json").read_text()
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


def renderers(browser) -> set[int]:
    """The processes of all tabs."""
    found = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    return {process["id"] for process in found if process["type"] == "renderer"}


def playing(browser, process, address: str, env: str, minutes: float) -> dict[str, list[float]]:
    """Drawings per second of an agent that plays, and the megabytes of server and tab, several times.

    Of the tab there are two numbers: what its script holds after a collection, and the whole process.
    """
    page = browser.new_page()
    tab = page.context.new_cdp_session(page)
    page.goto(address + "#play")
    page.wait_for_selector(".play select", timeout=120_000)
    agent = page.locator(".play .agents option", has_text=env).get_attribute("value")
    page.locator(".play .agents select").select_option(agent)
    page.wait_for_function(f"() => document.querySelector('.about')?.textContent.includes('{env}')", timeout=120_000)
    page.wait_for_selector(".law[role=group] .density .curve[d]", state="attached", timeout=120_000)
    page.evaluate(COUNT)
    own = max(renderers(browser), key=resident)  # the others are empty
    found = {name: [] for name in ("drawings_per_second", *(f"{who}_megabytes" for who in MEASURED))}
    rounds = max(3, round(minutes))
    for _ in range(rounds):
        page.wait_for_timeout(60_000 * minutes / rounds)
        drawn, spent = page.evaluate(SINCE)
        found["drawings_per_second"].append(1e3 * drawn / max(spent, 1))
        tab.send("HeapProfiler.collectGarbage")
        found["server_megabytes"].append(resident(process.pid) / 1e6)
        found["tab_megabytes"].append(tab.send("Runtime.getHeapUsage")["usedSize"] / 1e6)
        found["tab_process_megabytes"].append(resident(own) / 1e6)
        print(f"{env}: {', '.join(f'{name} {values[-1]:.1f}' for name, values in found.items())}", flush=True)
    page.close()
    return found


def growth(values: list[float]) -> float:
    """By which share the last third exceeds the first, by their medians; the first reading is left out."""
    third = max(1, (len(values) - 1) // 3)
    return median(values[-third:]) / median(values[1 : 1 + third]) - 1


Row = tuple[str, float, float, str]  # what, measured, target, unit


def speeds(opened: list[float], loaded: list[float], played: dict[str, dict[str, list[float]]]) -> list[Row]:
    """How fast it was."""
    return [
        ("law.html opens", median(opened), OPEN, "s"),
        (f"{RUNS} runs of {ROWS:,} rows load", median(loaded), LOAD, "s"),
        *((f"drawings, {ENVS[env]}", median(one["drawings_per_second"]), DRAW, "/s") for env, one in played.items()),
    ]


def growths(memory: dict[str, list[float]]) -> list[Row]:
    """How much memory grew."""
    names = {who: who.replace("_process", "'s process") for who in MEASURED}
    return [(f"memory of the {names[who]} grows", growth(memory[f"{who}_megabytes"]), GROW, "") for who in MEASURED]


def judged(rows: list[Row]) -> list[Target]:
    """Each target beside what was measured."""
    return [
        {"what": what, "measured": round(value, 4), "target": target, "unit": unit,
         "met": value >= target if target == DRAW else value <= target}
        for what, value, target, unit in rows
    ]  # fmt: skip


def told(row: Target) -> str:
    """A target in words."""
    least = "at least" if row["target"] == DRAW else "at most"
    met = "met" if row["met"] else "NOT met"
    return f"{row['what']}: {row['measured']:.3g}{row['unit']}, target {least} {row['target']:g}{row['unit']}: {met}"


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="how long the agent plays CartPole")
    parser.add_argument("--memory", action="store_true", help="measure only the memory")
    parser.add_argument("--rounds", type=int, default=5, help="how often the file and the curves are opened")
    parser.add_argument("--out", type=Path, default=Path("out/bench/page.json"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder, law = Path(name) / "runs", Path(name) / "law.html"
        folder.mkdir()
        write_runs(folder)
        law.write_text(html(document()))
        chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        minutes = {"CartPole-v1": given.minutes} | ({} if given.memory else {"LunarLander-v3": min(given.minutes, 1.0)})
        opened = [] if given.memory else opening(browser, law, given.rounds)
        with server(folder) as (process, address):
            loaded = [] if given.memory else loading(browser, address, given.rounds)
            played = {env: playing(browser, process, address, env, length) for env, length in minutes.items()}
        size = law.stat().st_size
        browser.close()
    memory = played["CartPole-v1"]
    targets = judged([*([] if given.memory else speeds(opened, loaded, played)), *growths(memory)])
    print(*map(told, targets), sep="\n")
    found = {
        "targets": targets,
        "law_html": {"bytes": size, "seconds": opened},
        "curves": {"runs": RUNS, "rows": ROWS, "seconds": loaded},
        "live": played,
    }
    if given.memory:
        del memory["drawings_per_second"]
        found = {"targets": targets, "live": played}
    how = "--memory" if given.memory else f"--rounds {given.rounds}"
    command = f"python benchmarks/page.py --minutes {given.minutes:g} {how}"
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps({**provenance(command), **found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
