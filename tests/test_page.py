"""The page in a real browser: it plays, scrubs, chooses by risk, compares, and never complains."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nfdrl.agent import Agent
from nfdrl.cli import main
from nfdrl.networks import TorsoSizes
from nfdrl.runs.session import Run
from nfdrl.training.config import TrainConfig

ROOT = Path(__file__).parents[1]
SMALL = TrainConfig(learning_starts=64, batch_size=16, torso=TorsoSizes(mlp=(16, 16)), report_every=50)
# Enough to learn that the short way along the cliff is better on average and worse in the worst tenth.
CLIFF = TrainConfig(
    discount=1.0, learning_starts=200, batch_size=32, train_every=1, n_step=1, target_every=100,
    epsilon_end=0.5, epsilon_fraction=0.1, learning_rate=2e-3, torso=TorsoSizes(mlp=(32,)),
)  # fmt: skip
LAPTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Law pages by name: the cliff, FrozenLake with two methods, and two with pictures."""
    folder = tmp_path_factory.mktemp("pages")
    cliff = "qr-dqn[quantiles=31,huber_threshold=0]"
    Agent(cliff, "nfdrl/RiskyCliff-v0", seed=0, config=CLIFF).learn(4_000, progress=False).save(folder / "cliff")
    for method in ("nfdrl-s", "c51"):
        Agent(method, "FrozenLake-v1", seed=1, config=SMALL).learn(200, progress=False).save(folder / f"lake-{method}")
    for seed, name in enumerate(("pole", "pole-again")):
        run = Run(folder / name, "nfdrl", "CartPole-v1", seed=seed, config=SMALL, checkpoint_every=100)
        run.train(300, progress=False)
    Agent("nfdrl", "MountainCar-v0", seed=1, config=SMALL).learn(200, progress=False).save(folder / "car")
    runs = {"cliff": ["cliff"], "lake": ["lake-nfdrl-s", "lake-c51"], "pole": ["pole", "pole-again"], "car": ["car"]}
    for name, names in runs.items():
        words = [str(folder / run) for run in names]
        assert (
            main(["page", *words, "--episodes", "3", "--max-steps", "100", "--out", str(folder / f"{name}.html")]) == 0
        )
    return {name: (folder / f"{name}.html").as_uri() for name in runs}


@pytest.fixture
def visit(browser):
    """Open an address; whatever the page complains about fails the test."""
    opened, complaints = [], []

    def go(address, size=LAPTOP, scheme="light", offline=True):
        context = browser.new_context(viewport=size, color_scheme=scheme, offline=offline)
        opened.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text) if message.type in TROUBLE else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        page.wait_for_selector("#panel > *")
        return page

    yield go
    for context in opened:
        context.close()
    assert complaints == []


TROUBLE = ("error", "warning")


def step_of(page):
    page.wait_for_selector("[data-step]")
    return int(page.get_attribute("[data-step]", "data-step"))


def move(page, slider, value):
    """Move a slider as a hand does, and wait for the drawing."""
    page.eval_on_selector(slider, "(e, v) => { e.value = v; e.dispatchEvent(new Event('input')); }", value)
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def curve(page, row, kind="density"):
    return page.get_attribute(f".law[role=group]:nth-of-type({row + 2}) .{kind} .curve", "d")


@pytest.mark.parametrize("name", ["cliff", "lake", "pole"])
def test_a_page_works_from_a_file_without_a_network(pages, visit, name):
    page = visit(pages[name])
    assert step_of(page) == 0
    assert page.locator(".law[role=group]").count() == {"cliff": 2, "lake": 4, "pole": 2}[name]
    assert page.locator(".law.chosen").count() == 1
    assert curve(page, 0).startswith("M0")


def test_play_advances_and_pause_stops(pages, visit):
    page = visit(pages["car"])
    page.click("#toggle")
    page.wait_for_function("() => Number(document.querySelector('[data-step]').dataset.step) > 2")
    page.click("#toggle")
    stopped = step_of(page)
    page.wait_for_timeout(300)
    assert step_of(page) == stopped


def test_keys_play_step_and_jump(pages, visit):
    page = visit(pages["car"])
    for key, expected in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("Home", 0)):
        page.keyboard.press(key)
        page.wait_for_function("(t) => document.querySelector('[data-step]').dataset.step === t", arg=str(expected))
    page.keyboard.press("End")
    last = int(page.get_attribute("#scrub", "max"))
    page.wait_for_function("(t) => document.querySelector('[data-step]').dataset.step === t", arg=str(last))
    page.keyboard.press("r")
    page.wait_for_function("() => document.querySelector('[data-step]').dataset.step === '0'")
    page.keyboard.press("Space")
    page.wait_for_function("() => Number(document.querySelector('[data-step]').dataset.step) > 0")


def test_scrubbing_shows_the_right_step(pages, visit):
    page = visit(pages["pole"])
    first, picture = curve(page, 0), page.get_attribute(".picture", "src")
    last = int(page.get_attribute("#scrub", "max"))
    move(page, "#scrub", last)
    assert step_of(page) == last
    assert f"step {last + 1} of {last + 1}" in page.inner_text(".caption")
    assert curve(page, 0) != first
    assert page.get_attribute(".picture", "src") != picture
    move(page, "#scrub", 0)
    assert curve(page, 0) == first


def test_the_slider_changes_the_choice_on_the_cliff(pages, visit):
    page = visit(pages["cliff"])
    assert page.get_attribute("[data-preferred]", "data-preferred") == "0"  # the short way
    move(page, "#risk", 18)
    assert page.get_attribute("[data-preferred]", "data-preferred") == "1"  # the long way
    assert "CVaR 0.14: long" in page.inner_text(".caption")
    assert page.locator(".law.preferred strong").inner_text() == "long"
    page.wait_for_function("() => document.querySelector('.summary').textContent.includes('differently in 1 of')")
    assert page.get_attribute(".differs", "d") != ""
    page.get_by_role("button", name="as trained").click()
    page.wait_for_function("() => document.querySelector('[data-preferred]').dataset.preferred === '0'")
    assert page.get_attribute(".differs", "d") == ""


@pytest.mark.parametrize("functional", ["wang", "var"])
def test_other_functionals_move_the_choice_too(pages, visit, functional):
    page = visit(pages["cliff"])
    page.select_option(".risk select", functional)
    move(page, "#risk", 20)
    assert page.get_attribute("[data-preferred]", "data-preferred") == "1"


def test_the_state_is_marked_on_the_map(pages, visit):
    page = visit(pages["lake"])
    assert page.get_attribute(".cell.here", "data-state") == "0"
    assert page.locator(".truth").first.get_attribute("d")  # the exact law lies under the learned one


def test_another_seed_shows_another_episode(pages, visit):
    page = visit(pages["car"])
    before = page.get_attribute(".picture", "src")
    page.select_option("#seed", "1")
    page.wait_for_function("(before) => document.querySelector('.picture').src !== before", arg=before)


@pytest.mark.parametrize("name", ["cliff", "lake", "pole"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_the_page_without_scrolling_sideways(pages, visit, name, scheme):
    page = visit(pages[name], PHONE, scheme)
    for tab in page.get_by_role("tab").all():
        tab.click()
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["cliff", "lake", "pole"])
def test_axe_finds_no_serious_fault(pages, visit, name, scheme):
    page = visit(pages[name], LAPTOP, scheme)
    for tab in page.get_by_role("tab").all():
        tab.click()
        page.wait_for_timeout(100)
        assert faults(page) == []


def faults(page):
    """Serious faults of accessibility, by axe-core."""
    axe = (ROOT / "web" / "built" / "axe.min.js").read_text()
    page.evaluate(f"() => {{ {axe} }}")  # a script element would be against the page's own policy
    found = page.evaluate("() => axe.run().then((result) => result.violations)")
    serious = [fault for fault in found if fault["impact"] in ("serious", "critical")]
    return [(fault["id"], [node["html"][:120] for node in fault["nodes"][:3]]) for fault in serious]


def test_nothing_jumps_while_the_episode_plays(pages, visit):
    page = visit(pages["car"])
    places = (
        "() => ['.timeline', '.controls', '.laws'].map((q) => document.querySelector(q).getBoundingClientRect().top)"
    )
    before = page.evaluate(places)
    for t in (1, 3, 7):
        move(page, "#scrub", t)
        assert page.evaluate(places) == before


def test_a_click_on_a_cell_shows_its_four_laws(pages, visit):
    page = visit(pages["lake"] + "#compare")
    page.wait_for_selector(".plots article")
    assert page.locator("article").count() == 2  # two agents side by side
    before = [curve.get_attribute("d") for curve in page.locator("article .curve").all()]
    page.click('.cell[data-state="14"]')
    assert page.inner_text("#state") == "state 14"
    assert page.locator("article").first.locator(".law[role=group]").count() == 4
    after = [curve.get_attribute("d") for curve in page.locator("article .curve").all()]
    assert all(a != b for a, b in zip(before, after, strict=True))
    assert all(truth.get_attribute("d") for truth in page.locator("article .truth").all())
    assert "Cramér" in page.inner_text("article >> nth=0")


def test_cells_can_be_chosen_by_keyboard_and_holes_cannot(pages, visit):
    page = visit(pages["lake"] + "#compare")
    page.wait_for_selector(".plots article")
    page.focus('.cell[data-state="6"]')
    page.keyboard.press("Enter")
    assert page.inner_text("#state") == "state 6"
    assert page.get_attribute('.cell[data-state="5"]', "tabindex") is None


def test_states_without_a_map_are_chosen_by_their_picture(pages, visit):
    page = visit(pages["pole"] + "#compare")
    page.locator(".thumb").nth(1).click()
    assert page.locator('.thumb[aria-pressed="true"]').count() == 1
    assert page.inner_text("#state") == page.locator(".thumb").nth(1).inner_text()


def test_calibration_counts_returns_and_episodes(pages, visit):
    page = visit(pages["cliff"] + "#calibration")
    lengths = page.evaluate(
        "() => JSON.parse(document.getElementById('document').textContent).episodes.map((one) => one.taken.length)"
    )
    assert f"{sum(lengths)} returns of 3 episodes" in page.inner_text(".about")
    page.get_by_label("first steps of episodes only").check()
    assert "3 returns of 3 episodes" in page.inner_text(".about")
    assert page.locator(".flag").count() == 3


def test_episodes_that_were_cut_off_calibrate_nothing(pages, visit):
    page = visit(pages["car"] + "#calibration")
    assert "None of its episodes ended by itself" in page.inner_text(".empty")


def test_curves_are_drawn_banded_and_downloaded(pages, visit):
    page = visit(pages["pole"] + "#train")
    page.wait_for_selector(".u-legend")
    assert "pole-again" in page.inner_text(".u-legend")
    with page.expect_download() as arrived:
        page.get_by_role("button", name="CSV").click()
    rows = Path(arrived.value.path()).read_text().splitlines()
    assert rows[0] == '"step","pole","pole-again"'
    assert len(rows) == 7  # 300 steps, a line for each 50
    with page.expect_download() as arrived:
        page.get_by_role("button", name="SVG").click()
    assert Path(arrived.value.path()).read_text().count("<path") >= 2
    with page.expect_download() as arrived:
        page.get_by_role("button", name="PNG").click()
    assert Path(arrived.value.path()).read_bytes().startswith(b"\x89PNG")
    page.get_by_label("bands over seeds").check()
    assert "2 seeds" in page.inner_text(".u-legend")
    page.get_by_label("log axis").check()
    move(page, "#smoothing", 0.5)


def test_the_ridge_has_one_outline_per_checkpoint(pages, visit):
    page = visit(pages["pole"] + "#train")
    page.wait_for_selector(".ridge")
    assert page.locator(".ridge-step").all_text_contents() == ["100", "200", "300"]


def test_a_page_without_figures_says_how_to_get_them(pages, visit):
    assert "--figures" in visit(pages["cliff"] + "#paper").inner_text(".empty")


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """A folder with an agent and a run whose metrics the test writes, and the server that shows them."""
    folder = tmp_path_factory.mktemp("live")
    Agent("dqn", "CartPole-v1", config=SMALL).learn(100, progress=False).save(folder / "a-pole")
    run = folder / "growing"
    run.mkdir()
    (run / "config.json").write_text((folder / "a-pole" / "config.json").read_text())
    (run / "metrics.csv").write_text("step,episode_return\n1000,1\n2000,2\n")
    words = [sys.executable, "-m", "nfdrl", "watch", str(folder), "--port", "0"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE)
    address = re.search(r"http://\S+", server.stdout.readline().decode())[0]
    yield address, run
    server.send_signal(signal.SIGINT)
    server.wait(30)
    server.stdout.close()


def test_the_curve_of_a_run_that_trains_grows_without_a_reload(live, visit):
    address, run = live
    page = visit(address + "#train", offline=False)
    page.wait_for_selector(".u-legend")
    canvas = "() => document.querySelector('.curves canvas').toDataURL()"
    before = page.evaluate(canvas)
    with (run / "metrics.csv").open("a") as file:
        file.write("3000,9\n4000,3\n")
    page.wait_for_function("(before) => document.querySelector('.curves canvas').toDataURL() !== before", arg=before)
    with page.expect_download() as arrived:
        page.get_by_role("button", name="CSV").click()
    assert Path(arrived.value.path()).read_text().splitlines()[-1] == "4000,3"


def test_an_agent_plays_live_pauses_and_starts_again(live, visit):
    page = visit(live[0], offline=False)
    page.wait_for_function("() => Number(document.querySelector('[data-step]')?.dataset.step) > 2", timeout=60_000)
    page.click("#toggle")  # pause
    page.wait_for_timeout(500)
    stopped = step_of(page)
    page.wait_for_timeout(500)
    assert step_of(page) == stopped
    page.fill("#seed", "77")
    page.keyboard.press("Tab")
    page.wait_for_function("(t) => Number(document.querySelector('[data-step]').dataset.step) !== t", arg=stopped)
    page.click("#toggle")
    assert faults(page) == []


def test_the_live_page_is_calm_on_a_phone(live, visit):
    page = visit(live[0], PHONE, "dark", offline=False)
    page.wait_for_selector("[data-step]", timeout=60_000)
    for tab in page.get_by_role("tab").all():
        tab.click()
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
