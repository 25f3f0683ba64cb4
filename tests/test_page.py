"""The page in a real browser: it plays, scrubs, chooses by risk, compares, and never complains."""

import base64
import io
import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from PIL import Image

from browsing import LAPTOP, PHONE, ROOT, faults
from nfdrl.agent import Agent
from nfdrl.cli import main
from nfdrl.laws import METHODS
from nfdrl.runs.session import Run
from nfdrl.torsos import TorsoSizes
from nfdrl.training.config import TrainConfig

pytestmark = pytest.mark.xdist_group("page")  # on one worker, so that agents are trained and pages made only once
SMALL = TrainConfig(learning_starts=64, batch_size=16, torso=TorsoSizes(mlp=(16, 16)), report_every=50)
# Enough to learn that the short way along the cliff is better on average and worse in the worst tenth.
CLIFF = TrainConfig(
    discount=1.0, learning_starts=200, batch_size=32, train_every=1, n_step=1, target_every=100,
    epsilon_end=0.5, epsilon_fraction=0.1, learning_rate=2e-3, torso=TorsoSizes(mlp=(32,)),
)  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder of agents and of two runs that differ in their seed alone."""
    folder = tmp_path_factory.mktemp("pages")
    cliff = "qr-dqn[quantiles=31,huber_threshold=0]"
    Agent(cliff, "nfdrl/RiskyCliff-v0", seed=0, config=CLIFF).learn(4_000, progress=False).save(folder / "cliff")
    for name, method in (("s", "nfdrl-s"), ("c51", "c51"), ("iqn", "iqn"), ("chain", "nfdrl-s[n_flows=2]")):
        Agent(method, "FrozenLake-v1", seed=1, config=SMALL).learn(200, progress=False).save(folder / f"lake-{name}")
    for seed, name in enumerate(("pole", "pole-again")):
        run = Run(folder / name, "nfdrl", "CartPole-v1", seed=seed, config=SMALL, checkpoint_every=100)
        run.train(300, progress=False)
    Agent("nfdrl", "MountainCar-v0", seed=1, config=SMALL).learn(200, progress=False).save(folder / "car")
    narrow = replace(SMALL, learning_rate=1e-2, return_range="method")  # laws that hold no return but the last
    Agent("c51[v_max=1.5,v_min=-1.5]", "CartPole-v1", config=narrow).learn(1_000, progress=False).save(
        folder / "narrow"
    )
    (folder / "narrow" / "metrics.csv").write_text("step,dormant\n500,0.125\n1000,0.75\n")
    (folder / "figures" / "theory").mkdir(parents=True)
    (folder / "figures" / "theory" / "figure.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    made = {"experiment": "theory", "command": "nfdrl paper theory --seed 3", "date": "2026-11-16"}
    (folder / "figures" / "theory" / "metrics.json").write_text(json.dumps(made))
    return folder


@pytest.fixture(scope="module")
def pages(trained):
    """Law pages by name: the cliff, FrozenLake with two methods, two with pictures, and one with a figure."""
    folder = trained
    runs = {"cliff": ["cliff"], "lake": ["lake-s", "lake-c51"], "pole": ["pole", "pole-again"], "car": ["car"]}
    runs |= {"three": ["lake-iqn", "lake-chain", "lake-s"], "narrow": ["narrow"]}
    for name, names in runs.items():
        words = [*(str(folder / run) for run in names), "--out", str(folder / f"{name}.html")]
        figures = ["--figures", str(folder / "figures")] if name == "narrow" else []
        assert main(["page", *words, "--episodes", "3", "--max-steps", "100", *figures]) == 0
    return {name: (folder / f"{name}.html").as_uri() for name in runs}


def step_of(page):
    page.wait_for_selector("[data-step]")
    return int(page.get_attribute("[data-step]", "data-step"))


def settled(page):
    """The step once the last one that the server had under way has arrived."""
    before = -1
    for _ in range(100):
        if step_of(page) == before:
            break
        before = step_of(page)
        page.wait_for_timeout(500)
    return before


def drawn(page):
    """Wait for what the page has still to draw: a change of it is drawn at the next frame."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def move(page, slider, value):
    """Move a slider as a hand does, and wait for the drawing."""
    page.eval_on_selector(slider, "(e, v) => { e.value = v; e.dispatchEvent(new Event('input')); }", value)
    drawn(page)


def painted(page, before=None):
    """The picture, once it is not the one before: none at first, which is a canvas of another size."""
    done = """(before) => {
      const canvas = document.querySelector('canvas.picture'), now = canvas.toDataURL();
      return canvas.width !== 300 && now !== before && now;
    }"""
    return page.wait_for_function(done, arg=before).json_value()


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
    drawn(page)
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
    first, picture = curve(page, 0), painted(page)
    last = int(page.get_attribute("#scrub", "max"))
    move(page, "#scrub", last)
    assert step_of(page) == last
    assert f"step {last + 1} of {last + 1}" in page.inner_text(".caption")
    assert curve(page, 0) != first
    assert painted(page, picture) != picture
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
    page.get_by_role("button", name="reset").click()
    page.wait_for_function("() => document.querySelector('[data-preferred]').dataset.preferred === '0'")
    assert page.get_attribute(".differs", "d") == ""


def test_the_map_shows_what_is_chosen_in_each_state(pages, visit):
    page = visit(pages["cliff"])
    step_of(page)
    ways = [page.locator(".edge").nth(k) for k in range(page.locator(".edge").count())]
    before = ["taken" in way.get_attribute("class") for way in ways]
    move(page, "#risk", 18)
    after = ["taken" in way.get_attribute("class") for way in ways]
    assert before.index(True) != after.index(True)  # the first two edges lead from the start
    page = visit(pages["lake"])
    step_of(page)
    assert {*page.locator(".map .arrow").all_text_contents()} - {""} <= {"←", "↓", "→", "↑"}
    assert page.locator('.cell[data-state="0"] .arrow').text_content() == page.inner_text(".law.chosen strong")


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
    before = painted(page)
    page.select_option("#seed", "1")
    assert painted(page, before) != before


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


def test_nothing_jumps_while_the_episode_plays(pages, visit):
    page = visit(pages["car"])
    parts = [".timeline", ".transport", ".risk", ".laws"]
    places = "(parts) => parts.map((part) => document.querySelector(part).getBoundingClientRect().top)"
    before = page.evaluate(places, parts)
    for t in (1, 3, 7):
        move(page, "#scrub", t)
        assert page.evaluate(places, parts) == before


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


def test_laws_that_are_drawn_from_some_of_their_quantiles_say_so(pages, visit):
    page = visit(pages["three"])
    step_of(page)
    assert "Drawn at the 32 levels by which it acts." in page.inner_text(".thinned")
    page = visit(pages["three"] + "#compare")
    page.wait_for_selector(".plots article")
    iqn, chain, whole = page.locator("article h3").all_inner_texts()
    assert "Drawn at the 32 levels by which it acts." in iqn
    assert "Drawn from 128 quantiles of each law." in chain
    assert "Drawn" not in whole
    page = visit(pages["lake"])
    step_of(page)
    assert page.inner_text(".thinned") == ""


def test_two_of_three_agents_can_be_put_side_by_side(pages, visit):
    page = visit(pages["three"] + "#compare")
    page.wait_for_selector(".plots article")
    page.get_by_role("checkbox", name="lake-chain").uncheck()
    assert [article.get_attribute("aria-label") for article in page.locator("article").all()] == ["lake-iqn", "lake-s"]
    page.click('.cell[data-state="14"]')
    assert page.locator("article").count() == 2
    for name in ("lake-iqn", "lake-s"):
        page.get_by_role("checkbox", name=name).uncheck()
    assert "No agent is chosen" in page.inner_text(".plots")
    assert faults(page) == []


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
    assert page.locator(".flag.bad").count() == 0


def test_a_range_that_is_too_narrow_and_dormant_units_are_flagged(pages, visit):
    page = visit(pages["narrow"] + "#calibration")
    outside, ends, dormant = page.locator(".flag.bad").all_inner_texts()
    assert "outside the range" in outside
    assert "0 % of the returns came" in ends
    assert "75 %" in dormant


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
    assert "fill-opacity" not in downloaded(page, "SVG").decode()
    page.get_by_label("bands over seeds").check()
    assert "2 seeds" in page.inner_text(".u-legend")
    assert downloaded(page, "CSV").decode().splitlines()[0].count("2 seeds") == 3  # the mean and both ends of the band
    assert downloaded(page, "SVG").decode().count("fill-opacity") == 1
    picture = Image.open(io.BytesIO(downloaded(page, "PNG"))).convert("RGB")
    assert picture.size == (1440, 800)
    assert picture.getpixel((0, 0)) == (255, 255, 255)
    assert len(picture.getcolors(1 << 20)) > 10


def downloaded(page, kind):
    with page.expect_download() as arrived:
        page.get_by_role("button", name=kind).click()
    return Path(arrived.value.path()).read_bytes()


def numbers(page):
    """The rows of a downloaded CSV: the step, and the values of its curves."""
    return np.genfromtxt(io.BytesIO(downloaded(page, "CSV")), delimiter=",", skip_header=1)


def test_curves_are_smoothed_and_every_metric_has_one(pages, visit):
    page = visit(pages["pole"] + "#train")
    page.wait_for_selector(".u-legend")
    shown = set(page.locator(".metric option").all_inner_texts())
    assert {"return", "loss", "ε", "steps per second", "learning rate", "dormant units"} <= shown
    page.locator(".metric select").select_option("epsilon")
    plain = numbers(page)[:, 1]
    move(page, "#smoothing", 0.5)
    smooth, total, weight = [], 0.0, 0.0
    for value in plain:
        total, weight = 0.5 * total + 0.5 * value, 0.5 * weight + 0.5
        smooth.append(total / weight)
    assert_allclose(numbers(page)[:, 1], smooth, rtol=1e-6)


def axis_labels(page, kind):
    """The numbers along an axis of the picture that is downloaded."""
    texts = re.findall(rf'text-anchor="{kind}">([^<]*)<', downloaded(page, "SVG").decode())
    return [float(text.replace(",", "").replace("k", "e3")) for text in texts if text[0].isdigit()]


def test_a_drag_zooms_and_a_button_shows_all_steps_again(pages, visit):
    page = visit(pages["pole"] + "#train")
    page.wait_for_selector(".u-legend")
    whole = axis_labels(page, "middle")
    box = page.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 60, steps=5)
    page.mouse.up()
    assert min(axis_labels(page, "middle")) > min(whole)
    page.get_by_role("button", name="all steps").click()
    assert axis_labels(page, "middle") == whole


def test_a_logarithmic_axis_has_equal_ratios(pages, visit):
    page = visit(pages["pole"] + "#train")
    page.wait_for_selector(".u-legend")
    canvas = "() => document.querySelector('.curves canvas').toDataURL()"
    before, values = page.evaluate(canvas), axis_labels(page, "end")
    assert_allclose(np.diff(values, n=2), 0, atol=1e-9)
    page.get_by_label("log axis").check()
    values = np.log(axis_labels(page, "end"))
    assert page.evaluate(canvas) != before
    assert_allclose(np.diff(values), np.diff(values).mean(), atol=0.01)  # the labels have three digits


def test_the_ridge_has_one_outline_per_checkpoint(pages, visit):
    page = visit(pages["pole"] + "#train")
    page.wait_for_selector(".ridge")
    assert page.locator(".ridge-step").all_text_contents() == ["100", "200", "300"]


def test_a_figure_comes_with_the_command_that_makes_it(pages, visit):
    page = visit(pages["narrow"] + "#paper")
    page.wait_for_selector(".paper article")
    assert page.inner_text(".command code") == "nfdrl paper theory --seed 3"
    assert page.get_attribute(".paper img", "src").startswith("data:image/svg+xml")
    assert faults(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_the_contrast_of_wcag_aa(pages, visit, browser, scheme):
    names = [
        "page",
        "raised",
        "ink",
        "soft",
        "accent",
        "on-accent",
        "differs",
        "edge",
        "truth",
        "hole",
        "goal",
        "start",
    ]
    read = "(names) => names.map((n) => getComputedStyle(document.documentElement).getPropertyValue('--' + n).trim())"
    found = dict(zip(names, visit(pages["cliff"], scheme=scheme).evaluate(read, names), strict=True))
    code = base64.b64encode((ROOT / "web" / "built" / "numerics.js").read_bytes()).decode()
    page = browser.new_page(color_scheme=scheme)
    ask = "([code, hexes]) => import('data:text/javascript;base64,' + code).then((lib) => hexes.map(lib.colourOf))"
    methods = page.evaluate(ask, [code, [method.colour for method in METHODS.values()]])
    page.close()
    for back in ("page", "raised"):
        for text in ("ink", "soft", "accent", "differs"):
            assert contrast(found[text], found[back]) >= 4.5, (text, back)
        for line in (found["edge"], found["truth"], *methods):
            assert contrast(line, found[back]) >= 3, (line, back)
    for text, back in (("on-accent", "accent"), ("soft", "hole"), ("soft", "goal"), ("soft", "start")):
        assert contrast(found[text], found[back]) >= 4.5, (text, back)


def contrast(one, other):
    """The ratio of two colours' relative luminances (WCAG 2.2)."""
    lights = []
    for colour in (one, other):
        parts = re.findall("[0-9a-f]{2}", colour[1:]) if colour.startswith("#") else re.findall(r"\d+", colour)
        red, green, blue = (int(part, 16 if colour.startswith("#") else 10) / 255 for part in parts)
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)]
        lights.append(0.05 + float(np.dot([0.2126, 0.7152, 0.0722], linear)))
    return max(lights) / min(lights)


def test_a_page_without_figures_says_how_to_get_them(pages, visit):
    assert "--figures" in visit(pages["cliff"] + "#paper").inner_text(".empty")


@pytest.fixture(scope="module")
def live(trained, tmp_path_factory):
    """A folder with agents, a run with checkpoints and one whose metrics the test writes, and their server."""
    folder = tmp_path_factory.mktemp("live")
    Agent("dqn", "CartPole-v1", config=SMALL).learn(100, progress=False).save(folder / "a-pole")
    shutil.copytree(trained / "cliff", folder / "cliff")
    shutil.copytree(trained / "pole", folder / "pole")
    run = folder / "growing"
    run.mkdir()
    (run / "config.json").write_text((folder / "a-pole" / "config.json").read_text())
    (run / "metrics.csv").write_text("step,episode_return\n1000,1\n2000,2\n")
    words = [sys.executable, "-m", "nfdrl", "watch", str(folder), "--port", "0"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE)
    address = re.search(r"http://\S+", server.stdout.readline().decode())[0]
    yield address, run
    server.send_signal(signal.SIGINT)
    server.wait(300)
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
    assert Path(arrived.value.path()).read_text().splitlines()[-1].startswith("4000,3")


def test_an_agent_plays_live_pauses_and_starts_again(live, visit):
    page = visit(live[0], offline=False)
    page.wait_for_function("() => Number(document.querySelector('[data-step]')?.dataset.step) > 2")
    page.click("#toggle")  # pause
    stopped = settled(page)
    page.wait_for_timeout(500)
    assert step_of(page) == stopped
    page.fill("#seed", "77")
    page.keyboard.press("Tab")
    page.wait_for_function("(t) => Number(document.querySelector('[data-step]').dataset.step) !== t", arg=stopped)
    page.click("#toggle")
    assert faults(page) == []


def test_the_slider_changes_what_a_live_agent_does(live, visit):
    page = visit(live[0], offline=False)
    cliff = page.locator(".agents option", has_text="RiskyCliff").get_attribute("value")
    page.locator(".agents select").select_option(cliff)
    page.wait_for_function("() => document.querySelector('.about')?.textContent.includes('RiskyCliff')")
    page.wait_for_selector(".law.chosen")
    first = """(name) => document.querySelector('[data-step]').dataset.step === '0'
      && document.querySelector('.law.chosen strong').textContent === name"""
    for place, name in ((0, "short"), (18, "long")):
        move(page, "#risk", place)
        page.wait_for_function(first, arg=name)  # one episode follows the other


def test_agents_changed_before_they_answer_leave_no_complaint(live, visit):
    page = visit(live[0], offline=False)
    page.locator(".agents select").evaluate(
        """(chooser) => {
          for (let k = 0; k < 12; k++) {  // faster than any connection is made, and more than may play at once
            chooser.selectedIndex = k % chooser.length;
            chooser.dispatchEvent(new Event('change', { bubbles: true }));
          }
        }"""
    )
    page.wait_for_selector(".law.chosen")


def test_runs_and_checkpoints_that_come_later_appear(live, trained, visit):
    address, run = live
    page = visit(address + "#train", offline=False)
    page.wait_for_selector(".u-legend")
    page.wait_for_selector(".ridge")
    assert page.locator(".ridge-step").all_text_contents() == ["100", "200", "300"]
    Run.resume(run.parent / "pole").train(400, progress=False)
    page.wait_for_function("() => [...document.querySelectorAll('.ridge-step')].at(-1).textContent === '400'")
    page.get_by_role("tab", name="Compare").click()
    page.wait_for_selector(".plots article")
    shutil.copytree(trained / "narrow", run.parent / "z-narrow")
    page.wait_for_function("() => document.querySelector('article[aria-label=z-narrow]')")
    for tab in ("Play", "Calibration"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_function("() => document.querySelector('#panel select')?.textContent.includes('z-narrow')")


def test_the_live_page_is_calm_on_a_phone(live, visit):
    page = visit(live[0], PHONE, "dark", offline=False)
    page.wait_for_selector("[data-step]")
    for tab in page.get_by_role("tab").all():
        tab.click()
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
