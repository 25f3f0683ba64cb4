"""The page of `nfdrl report` in a real browser: it says what the tables say, and what is missing."""

import json
import re
from dataclasses import asdict

import pytest

from browsing import LAPTOP, PHONE, faults
from nfdrl.cli import main
from nfdrl.paper.atari5 import GAMES, read_references
from nfdrl.viewer.messages import read, unpack
from nfdrl.viewer.report_schema import Report
from written_runs import reported, write_run

DQN = (100.0, 200.0, 450.0, 300.0)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Three methods on CartPole, of which one has a single seed and one an unevaluated one; two on another game."""
    folder = tmp_path_factory.mktemp("report")
    for seed, score in enumerate(DQN):
        write_run(folder / f"runs/dqn-{seed}", score, seed=seed)
        write_run(folder / f"runs/c51-{seed}", score + 60 if seed else None, seed=seed, method="c51")
        for method, more in (("dqn", 0), ("c51", -1)):
            write_run(folder / f"runs/game-{method}-{seed}", 10 + seed + more, seed=seed, method=method, env="Game-v0")
    write_run(folder / "runs/iqn", 250.0, method="iqn")
    words = ["report", str(folder / "runs"), "--target", "CartPole-v1=500", "Game-v0=5:15"]
    assert main([*words, "--out", str(folder / "out")]) == 0
    return folder / "out"


@pytest.fixture(scope="module")
def found(out):
    """What the page was given."""
    text = (out / "report.html").read_text()
    data = re.search(r'<script type="application/json" id="document">(.*?)</script>', text, re.DOTALL)[1]
    return json.loads(data)


def open_report(visit, out, **how):
    page = visit((out / "report.html").as_uri(), **how)
    page.wait_for_selector(".u-legend")
    return page


def test_a_report_page_is_a_message_of_the_schema(found):
    made = read(Report, found)
    assert asdict(made) == found
    assert [env.env for env in made.environments] == ["CartPole-v1", "Game-v0"]
    assert made.aggregate[0].environments == 2


def test_a_band_of_the_page_holds_its_curve(found):
    bands = [curve for env in read(Report, found).environments for curve in env.curves if curve.low is not None]
    assert len(bands) == 4
    for curve in bands:
        low, values, high = map(unpack, (curve.low, curve.values, curve.high))
        assert (low <= values + 1e-3).all()
        assert (values <= high + 1e-3).all()


def test_the_page_shows_the_numbers_of_the_tables(visit, out):
    page = open_report(visit, out)
    (row,) = (row for row in reported(out, "lines") if (row["env"], row["method"]) == ("CartPole-v1", "dqn"))
    shown = page.locator("section", has_text="Returns in CartPole-v1").locator("tr", has_text="DQN").first
    cell = shown.locator("td").first.inner_text()
    numbers = [float(row[name]) for name in ("mean", "mean_low", "mean_high")]
    assert [float(word) for word in re.findall(r"[\d.]+", cell)] == pytest.approx(numbers, rel=5e-3)
    assert shown.locator("td").first.locator(".seed").count() == len(DQN)
    total = page.locator("tr", has_text="2 of 2 environments").nth(1).locator("td").first.inner_text()
    (dqn,) = (row for row in reported(out, "aggregate") if row["method"] == "dqn")
    assert float(total.split()[0]) == pytest.approx(float(dqn["iqm"]), rel=5e-3)


def test_missing_cells_few_seeds_and_unevaluated_runs_are_said_on_the_page(visit, out):
    page = open_report(visit, out)
    notes = page.locator(".flags").inner_text()
    assert "fewer than 3 evaluated seeds in CartPole-v1: IQN (1)" in notes
    assert "not run in Game-v0: IQN" in notes
    assert "not evaluated: C51 in CartPole-v1, seed 0" in notes
    cartpole = page.locator("section", has_text="Returns in CartPole-v1")
    assert "⚠ 1 seed" in cartpole.locator(".estimates tr", has_text="IQN").inner_text()
    assert "⚠ 3 of 4 seeds evaluated" in cartpole.locator(".estimates tr", has_text="C51").inner_text()
    assert "Not run here: IQN" in page.locator("section", has_text="Returns in Game-v0").inner_text()
    assert "⚠ 1 of 2 environments" in page.inner_text("#panel")


def test_who_beats_whom_is_complementary_and_follows_the_environment(visit, out):
    page = open_report(visit, out)
    texts = "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.innerText))"
    named = {(row["env"], row["label"], row["other"]): row for row in reported(out, "improvement")}
    for env in ("", "Game-v0"):
        page.select_option("select", env)
        rows = page.eval_on_selector_all(".matrix tbody tr", texts)
        names = [name for name, *_ in rows]
        dqn, c51 = names.index("DQN"), names.index("C51")
        ours, theirs = float(rows[dqn][1 + c51].split()[0]), float(rows[c51][1 + dqn].split()[0])
        assert theirs == pytest.approx(float(named[env or "all", "C51", "DQN"]["probability"]), abs=0.005)
        assert ours + theirs == pytest.approx(1, abs=0.011)
    assert names == ["C51", "DQN"]  # IQN was not run there


def test_curves_follow_the_colours_of_the_page_and_a_click_hides_a_line_with_its_band(visit, out):
    page = open_report(visit, out)
    canvas = "() => document.querySelector('#panel canvas').toDataURL()"
    before = page.evaluate(canvas)
    assert page.locator(".u-legend >> nth=0").inner_text().count("Value") == 0  # edges of bands have no entry
    page.get_by_role("button", name="light or dark").click()
    dark = page.evaluate(canvas)
    assert dark != before
    page.locator(".u-legend").first.locator(".u-series", has_text="C51").locator("th").click()
    shown = "() => document.querySelectorAll('.u-legend')[0].querySelectorAll('.edge.u-off').length"
    assert page.evaluate(shown) == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_page_has_no_serious_fault_and_fits_a_phone(visit, out, scheme):
    assert faults(open_report(visit, out, size=LAPTOP, scheme=scheme)) == []
    page = open_report(visit, out, size=PHONE, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert faults(page) == []


def test_links_lead_to_their_sections(visit, out):
    page = open_report(visit, out)
    page.get_by_role("link", name="Who beats whom").click()
    assert page.evaluate("() => document.getElementById('pairs').getBoundingClientRect().top < innerHeight")
    page.keyboard.press("Tab")  # the order of the page, after the link
    assert page.evaluate("() => document.activeElement !== document.body")


def test_five_atari_games_have_a_human_normalised_and_an_atari5_score_on_the_page(visit, tmp_path):
    for game, score in zip(GAMES, read_references()[1].human, strict=True):
        for seed in range(2):
            write_run(tmp_path / f"runs/{game}-{seed}", score, env=f"ALE/{game}-v5", seed=seed)
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 0
    page = open_report(visit, tmp_path / "out")
    assert "Human-normalised scores over 5 environments" in page.inner_text("#panel")
    row = page.locator("tr", has_text="5 of 5 environments")
    assert row.locator("td").last.inner_text().split()[0] == "85.1"
    assert "Atari-5" in page.locator(".estimates thead").first.inner_text()


def test_runs_without_targets_and_curves_still_make_a_page(visit, tmp_path):
    write_run(tmp_path / "runs/a", 1.0, env="Own-v0")
    (tmp_path / "runs/a/metrics.csv").write_text("step,episodes,episode_return,steps_per_second\n100,0,,1\n")
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 0
    page = visit((tmp_path / "out/report.html").as_uri())
    assert "No target score" in page.inner_text("#panel")
    assert "No curve" in page.inner_text("#panel")
    assert page.locator(".matrix").count() == 0
