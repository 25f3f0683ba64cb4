"""What Python hands to the page: messages that fit their schema, laws that the browser computes as Python does."""

import base64
import hashlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from nfdrl.agent import Agent
from nfdrl.cli import main
from nfdrl.envs.cliff import risky_cliff
from nfdrl.envs.finite import FiniteMDP
from nfdrl.envs.toy import mdp3
from nfdrl.errors import NfdrlError
from nfdrl.evaluation.episode import rendering_env
from nfdrl.evaluation.truth import exact_returns
from nfdrl.laws import METHODS, find_method
from nfdrl.laws.categorical import CategoricalLaw
from nfdrl.laws.dirac import DiracLaw
from nfdrl.laws.flow import FlowLaw
from nfdrl.laws.mixture import MixtureLaw
from nfdrl.laws.monotone import MonotoneLaw
from nfdrl.laws.quantile import QuantileLaw
from nfdrl.risk import parse_risk
from nfdrl.torsos import TorsoSizes
from nfdrl.training.config import TrainConfig
from nfdrl.viewer import messages, recording
from nfdrl.viewer.document import html
from nfdrl.viewer.folders import find_figures, find_run, find_runs, read_curve
from nfdrl.viewer.maps import graph_of
from nfdrl.viewer.messages import pack, read, to_text, unpack
from nfdrl.viewer.packing import pack_laws, pack_mixtures
from nfdrl.viewer.schema import Command, Document
from nfdrl.viewer.stage import Stage
from written_runs import write_run

ROOT = Path(__file__).parents[1]
STATIC = ROOT / "src" / "nfdrl" / "viewer" / "static"
SMALL = TrainConfig(learning_starts=64, batch_size=16, torso=TorsoSizes(mlp=(16, 16)))
LEVELS = [0.003, 0.0511, 0.1, 0.37, 0.5003, 0.82, 0.9961]
RISKS = ["mean", "cvar:0.05", "cvar:0.1", "cvar:0.73", "var:0.051", "var:0.5003", "wang:-0.75", "wang:-2", "wang:0.5"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agents")
    for method in ("nfdrl-s", "c51"):
        Agent(method, "FrozenLake-v1", seed=1, config=SMALL).learn(200, progress=False).save(folder / method)
    return folder


@pytest.fixture(scope="module")
def document(saved, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "law.html"
    runs = [str(saved / "nfdrl-s"), str(saved / "c51")]
    assert main(["page", *runs, "--episodes", "2", "--out", str(path)]) == 0
    return path


def inside(path):
    text = path.read_text()
    data = re.search(r'<script type="application/json" id="document">(.*?)</script>', text, re.DOTALL)[1]
    return json.loads(data)


def test_the_schema_on_disk_is_that_of_the_classes():
    assert json.loads((STATIC / "schema.json").read_text()) == messages.schema(), "run: make page"


def test_the_bundle_was_built_from_these_sources():
    web, digest = ROOT / "web", hashlib.sha256()
    names = [f"src/{path.name}" for path in sorted((web / "src").iterdir(), key=lambda path: path.name)]
    for name in [*names, "build.mjs", "package-lock.json", "page.html"]:
        digest.update(name.encode() + b"\0" + (web / name).read_bytes() + b"\0")
    digest.update((STATIC / "schema.json").read_bytes())
    assert (STATIC / "sources.sha256").read_text().strip() == digest.hexdigest(), "run: make page"


def test_a_page_is_a_document_of_the_schema(document):
    found = inside(document)
    made = read(Document, found)
    assert asdict(made) == found
    assert [len(made.agents), len(made.episodes), len(made.tables)] == [2, 4, 1]
    assert [agent.run.method for agent in made.agents] == ["nfdrl-s", "c51"]


@pytest.mark.parametrize(
    "broken",
    [{"playing": 1}, {"speed": "fast"}, {"steps": 1.5}, {"open": "/etc/passwd"}, {"risk": ["mean"]}, [], "play", None],
)
def test_a_message_that_does_not_fit_its_class_is_refused(broken):
    with pytest.raises(NfdrlError):
        read(Command, broken)


def test_the_page_holds_everything_and_loads_nothing(document):
    text = document.read_text()
    page = re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.DOTALL)
    assert not re.search(r"""(src|href)=["'](?!data:)""", page)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "default-src 'none'" in policy
    script = re.search(r'<script type="module">(.*?)</script>', page, re.DOTALL)[1]
    assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy


def test_no_name_of_a_run_can_end_the_script(document):
    evil = "</script><script>alert(1)</script>"
    made = read(Document, inside(document) | {"title": evil})
    assert evil not in html(made)


@pytest.mark.parametrize("method", METHODS)
def test_two_thousand_steps_of_eighteen_actions_stay_under_five_megabytes(method):
    head = METHODS[method].head(4, 18)
    with torch.no_grad():
        law = head(torch.rand(2_000, 4))
        most = max(recording.LEAST_NUMBERS, recording.BUDGET // (4 * 18 * 2_000))
        packed = pack_laws(law, most)
    size = len(to_text(packed))
    shell = sum(len((STATIC / name).read_bytes()) for name in ("page.js", "page.css", "page.html"))
    assert size + shell < 5_000_000


def test_packed_numbers_come_back():
    values = np.array([0.0, -1.5, 3.25, np.inf], np.float32)
    assert_array_equal(unpack(pack(values)), values)


def laws():
    """One batch of laws of every kind, in float64 of float32 numbers, as the browser has them."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator).double()

    flow = FlowLaw.from_raw(1.5 * normal(3, 4, 13), 7.0)
    sharp = FlowLaw.from_raw(torch.cat([normal(2, 3, 8), -6 - normal(2, 3, 4).abs(), normal(2, 3, 1)], -1), 0.4)
    masses = normal(2, 3, 21).softmax(-1)
    edges = torch.nn.functional.pad(masses[..., :-1].cumsum(-1), (1, 0))
    grid, zero = torch.linspace(-3, 5, 22, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    cumulative = torch.cat([edges, torch.ones(2, 3, 1, dtype=torch.float64)], -1)
    return {
        "flow": flow,
        "sharp flow": sharp,
        "moved flow": flow.bootstrap(normal(3, 4), 0.7),
        "categorical": CategoricalLaw(normal(2, 3, 51).log_softmax(-1), torch.linspace(-4, 9, 51, dtype=torch.float64)),
        "quantile": QuantileLaw(10 * normal(2, 3, 32)),
        "dirac": DiracLaw(normal(2, 3)),
        "monotone": MonotoneLaw(cumulative, grid, zero, zero + 1),
    }


def rounded(law):
    """The law with its parameters as float32 has them."""
    if isinstance(law, FlowLaw):
        parts = law.weights, law.locations, law.scales, law.bound, law.center
        return FlowLaw(*(part.float().double() for part in parts), validate=False)
    if isinstance(law, CategoricalLaw):
        return CategoricalLaw(law.masses.float().double().log(), law.atoms.float().double())
    if isinstance(law, MonotoneLaw):
        return MonotoneLaw(law.cumulative.float().double(), law.grid.float().double(), law.shift, law.scale)
    return type(law)(law.reference.float().double())


ASK = """([code, laws, levels, points, risks]) => import("data:text/javascript;base64," + code).then((lib) => {
  const table = new lib.LawTable(laws);
  const rows = [];
  for (let row = 0; row < table.rows; row++) for (let action = 0; action < table.actions; action++) {
    const law = table.at(row, action);
    const at = points[rows.length];
    rows.push(law && {
      mean: law.mean(), quantile: levels.map((t) => law.quantile(t)), cvar: levels.map((t) => law.cvar(t)),
      cdf: at.map((y) => law.cdf(y)), pdf: law.smooth ? at.map((y) => law.pdf(y)) : null,
      risk: risks.map((word) => lib.valuation(lib.parse(word))(law)),
    });
  }
  return rows;
})"""


@pytest.fixture(scope="module")
def ask(browser):
    page = browser.new_page()
    code = base64.b64encode((ROOT / "web" / "built" / "numerics.js").read_bytes()).decode()
    yield lambda packed, points: page.evaluate(ASK, [code, asdict(packed), LEVELS, points, RISKS])
    page.close()


@pytest.mark.parametrize("kind", laws())
def test_the_browser_computes_laws_as_python_does(ask, kind):
    law = rounded(laws()[kind])
    points = law.quantile(torch.tensor([0.02, 0.3, 0.5, 0.77, 0.99]).double()) + 1e-3
    rows = ask(pack_laws(law), points.flatten(0, 1).tolist())
    levels, scale = torch.tensor(LEVELS).double(), float(law.std().max().clamp_min(1))

    def equal(name, expected, tolerance=1e-5):
        found = np.array([row[name] for row in rows])
        assert_allclose(found, np.asarray(expected.flatten(0, 1)), rtol=1e-5, atol=tolerance * scale)

    equal("mean", law.mean())
    equal("quantile", law.quantile(levels))
    equal("cvar", law.cvar(levels))
    equal("cdf", law.cdf(points))
    equal("risk", torch.stack([parse_risk(word)(law) for word in RISKS], -1))
    if rows[0]["pdf"] is not None:
        equal("pdf", law.pdf(points))


@pytest.mark.parametrize("mdp", [risky_cliff(), mdp3()], ids=lambda mdp: mdp.name)
def test_the_browser_computes_exact_laws_as_python_does(ask, mdp):
    truth = exact_returns(mdp, mdp.optimal_policy())
    exact = [MixtureLaw(*(t.float().double() for t in (law.weights, law.means, law.stds))) for law in truth.laws]
    points = [(law.quantile(torch.tensor([0.05, 0.4, 0.9]).double()) + 1e-3).tolist() for law in exact]
    rows = ask(pack_mixtures([*exact, None], 1), [*points, []])
    assert rows.pop() is None
    for law, row, at in zip(exact, rows, points, strict=True):
        levels = torch.tensor(LEVELS).double()
        assert_allclose(row["mean"], law.mean(), atol=1e-5)
        assert_allclose(row["quantile"], law.quantile(levels), atol=1e-5)
        assert_allclose(row["cvar"], law.cvar(levels), atol=1e-5)
        assert_allclose(row["cdf"], law.cdf(torch.tensor(at).double()), atol=1e-5)


@pytest.mark.parametrize("method", [*METHODS, "nfdrl-s[n_flows=2]"])
def test_the_browser_computes_the_laws_of_every_method(ask, double, method):
    torch.manual_seed(3)
    with torch.no_grad():
        law = find_method(method).head(4, 2)(3 * torch.randn(5, 4))
        levels, scale = torch.tensor(LEVELS), float(law.std().max() + 1)
        points = law.quantile(torch.tensor([0.02, 0.3, 0.5, 0.77, 0.99])) + 1e-3 * scale
        expected = {
            "mean": law.mean(),
            "quantile": law.quantile(levels),
            "cvar": law.cvar(levels),
            "cdf": law.cdf(points),
        }
    packed = pack_laws(law)
    rows = ask(packed, points.flatten(0, 1).tolist())
    assert (packed.note is None) == (method not in ("iqn", "nfdrl-s[n_flows=2]"))
    exact = expected if packed.note is None else ["mean"]  # of the others a note says what is left out
    tolerance = 1e-5 if packed.note is None or "levels" in packed.note else 1e-2
    for name in exact:
        found = [row[name] for row in rows]
        assert_allclose(found, expected[name].flatten(0, 1), rtol=0, atol=tolerance * scale, err_msg=name)


def test_the_anchored_law_travels_as_a_flow():
    packed = pack_laws(Agent("nfdrl", "CartPole-v1", config=SMALL).returns(np.zeros((1, 4), np.float32)))
    assert packed.kind == "flow"


def test_the_exact_laws_belong_to_the_agents_own_policy(document, saved):
    table = read(Document, inside(document)).tables[0]
    agent = Agent.load(saved / "nfdrl-s")
    mdp = FiniteMDP.from_env("FrozenLake-v1")
    policy = agent.predict(np.arange(mdp.n_states))[0]
    truth = exact_returns(mdp, policy, agent.config.discount, tolerance=1e-6)
    row, found = 3, table.agents[0].truth
    weights, means = unpack(found.weights), unpack(found.means)
    for action in range(4):
        part = slice(found.first[4 * row + action], found.first[4 * row + action + 1])
        assert_allclose((weights[part] * means[part]).sum(), truth[table.states[row], action].mean(), atol=1e-5)


def test_the_states_of_a_small_mdp_do_not_lie_on_each_other():
    made = graph_of(risky_cliff())
    assert len({(node.x, node.y) for node in made.nodes}) == len(made.nodes)
    assert made.nodes[0].x == 0
    assert all(made.nodes[edge.target].x > made.nodes[edge.source].x for edge in made.edges)


@pytest.fixture
def run(tmp_path, saved):
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text((saved / "c51" / "config.json").read_text())
    (folder / "metrics.csv").write_text("step,loss,dormant\n1,0.5,\n2,,0.25\n")
    return find_run(folder, tmp_path / "runs")


def test_a_curve_is_read_once_and_continued(run):
    path = run.folder / "metrics.csv"
    first = read_curve(run)
    assert_array_equal(unpack(first.columns["step"]), [1, 2])
    assert np.isnan(unpack(first.columns["loss"])[1])
    assert read_curve(run, first.offset) is None
    with path.open("a") as file:
        file.write("3,0.25,\n4,0.1")  # the last line is not finished
    second = read_curve(run, first.offset)
    assert (second.fresh, unpack(second.columns["step"]).tolist()) == (False, [3.0])
    path.write_text("step,loss,dormant\n1,0.5,\n")
    assert read_curve(run, second.offset).fresh


@pytest.mark.parametrize("odd", ["", "5,\n", "5,0.5,0,7\n", "5,six,0\n", "\n", "#5,0.5,0\n"])
def test_numbers_are_the_same_whatever_else_a_table_holds(run, odd):
    path, rows = run.folder / "metrics.csv", "1,0.5,-1e-3\n2,nan,inf\n3,1e300,0.1\n"
    path.write_text("step,loss,dormant\n" + rows + odd)
    columns = read_curve(run).columns
    assert_array_equal(unpack(columns["dormant"])[:3], np.float32([-1e-3, np.inf, 0.1]))
    if odd.count(",") != 2:  # not a row of this table
        assert_array_equal(unpack(columns["step"]), [1, 2, 3])
        assert_array_equal(unpack(columns["loss"]), np.float32([0.5, np.nan, np.inf]))


def test_runs_that_differ_in_their_seed_alone_have_one_setting(tmp_path):
    write_run(tmp_path / "a", 1.0)
    write_run(tmp_path / "b", 2.0, seed=1, checkpoint_every=7)
    write_run(tmp_path / "c", 3.0, seed=2, train={"learning_rate": 1e-4})
    a, b, c = (find_run(tmp_path / name).card.setting for name in "abc")
    assert a == b != c


def test_the_last_share_of_dormant_units_is_found(run):
    assert run.dormant() == 0.25


def test_ids_lead_nowhere(run, tmp_path):
    found = find_runs(tmp_path / "runs")
    assert list(found) == [run.card.id]
    assert re.fullmatch("[0-9a-f]{12}", run.card.id)
    assert found[run.card.id].card.name == "one"


def test_a_run_is_a_folder_of_one_run(run):
    (found,) = find_runs(run.folder).values()
    assert (found.card.name, found.card.id) == ("one", run.card.id)


def test_figures_come_with_their_commands(tmp_path):
    folder = tmp_path / "theory"
    folder.mkdir()
    (folder / "figure.png").write_bytes(b"")
    (folder / "metrics.json").write_text(json.dumps({"experiment": "theory", "command": "nfdrl paper theory"}))
    (figure,) = find_figures(tmp_path).values()
    assert (figure.card.title, figure.card.command) == ("theory", "nfdrl paper theory")


def test_environments_draw_their_first_picture_one_after_another(monkeypatch):
    inside, most = [], []

    def watched(*words):
        inside.append(0)
        most.append(len(inside))
        try:
            return rendering_env(*words)
        finally:
            inside.pop()

    monkeypatch.setattr("nfdrl.viewer.stage.rendering_env", watched)
    agent = Agent("dqn", "CartPole-v1", config=SMALL)
    with ThreadPoolExecutor(4) as pool:
        for stage in pool.map(lambda _: Stage(agent), range(4)):
            stage.close()
    assert most == [1, 1, 1, 1]


def test_a_page_is_not_overwritten_unless_asked(document, saved, capsys):
    assert main(["page", str(saved / "c51"), "--out", str(document)]) == 2
    assert "exists" in capsys.readouterr().err


def test_a_folder_without_a_run_is_refused_in_one_line(tmp_path, capsys):
    assert main(["page", str(tmp_path), "--out", str(tmp_path / "law.html")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
