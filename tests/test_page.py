"""The page in a real browser: it plays, scrubs, chooses by risk, compares, and never complains."""

from pathlib import Path

import pytest

from nfdrl.agent import Agent
from nfdrl.cli import main
from nfdrl.networks import TorsoSizes
from nfdrl.training.config import TrainConfig

ROOT = Path(__file__).parents[1]
SMALL = TrainConfig(learning_starts=64, batch_size=16, torso=TorsoSizes(mlp=(16, 16)))
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
    for name, env in (("pole", "CartPole-v1"), ("car", "MountainCar-v0")):
        Agent("nfdrl", env, seed=1, config=SMALL).learn(200, progress=False).save(folder / name)
    runs = {"cliff": ["cliff"], "lake": ["lake-nfdrl-s", "lake-c51"], "pole": ["pole"], "car": ["car"]}
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
