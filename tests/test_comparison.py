"""The comparison finds exact laws exact, limits where they belong, and does nothing twice."""

import csv
import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from nfdrl.cli import main
from nfdrl.cli.compare import nearest_first
from nfdrl.colours import GREY
from nfdrl.errors import NfdrlError
from nfdrl.evaluation import comparison, comparison_figure
from nfdrl.evaluation.comparison import Budget, Contender, Problem, Store
from nfdrl.evaluation.distances import batch_distances
from nfdrl.evaluation.problems import contender, finite_mdp
from nfdrl.laws import METHODS
from nfdrl.laws.fitting import Fit
from nfdrl.laws.flow import FlowLaw
from nfdrl.laws.mixture import MixtureLaw
from nfdrl.numerics.atoms import midpoints
from nfdrl.paper import load
from nfdrl.paper.mdp3 import modes
from nfdrl.progress import Progress
from nfdrl.training.policy_laws import PolicyLearning, learn_policy_laws

SMALL = Budget(updates=8, batch_size=8, fit_updates=400, fit_restarts=4)
FIT = Fit(SMALL.fit_updates, SMALL.fit_restarts)
TWO = MixtureLaw.atoms([0.3, 0.8], [0.5, 0.5])
SMOOTH = MixtureLaw(*(torch.tensor(t, dtype=torch.float64) for t in ([0.5, 0.5], [-2.0, 2.0], [1.0, 1.0])))
FILES = {"comparison.csv", "pairs.csv", "metrics.json", "figure.png", "figure.svg"}


def silent(steps, text):
    return steps


def limit(method, truth, fit=FIT):
    """The distance to a truth of the best law that a method can hold."""
    return batch_distances(method.best_law([truth], fit, silent), [truth])["cramer"][0]


def run(out, *words):
    assert main(["compare", "--smoke", "--out", str(out), *words]) == 0
    return json.loads((out / "metrics.json").read_text())


def test_every_method_is_compared_and_all_files_are_written(tmp_path, capsys):
    metrics = run(tmp_path, "--envs", "mdp2")
    assert {file.name for file in tmp_path.iterdir() if file.is_file()} == FILES
    assert {"version", "date", "command", "hardware", "seconds"} <= metrics.keys()
    assert [row["method"] for row in metrics["rows"]] == list(METHODS)
    assert all(row["cramer"] > 0 and row["milliseconds"] > 0 for row in metrics["rows"])
    assert {row["method"]: row["outputs"] for row in metrics["rows"]}["nfdrl-s"] == 13
    assert [(row["state"], row["action"]) for row in metrics["pairs"]] == [("s1", "a1")] * len(METHODS)
    with (tmp_path / "comparison.csv").open(newline="") as file:
        assert [row["method"] for row in csv.DictReader(file)] == list(METHODS)
    assert "nfdrl-s" in capsys.readouterr().out


def test_a_method_with_many_settings_leaves_room_for_its_numbers(tmp_path, capsys):
    words = ",".join([
        "comparison.rooted=true", "comparison.averaged=true", "comparison.kernel_gradients=false",
        "comparison.masses=density", "comparison.support=interpolated", "comparison.kernel=gaussian",
        "comparison.bandwidth=0.05", "samples=50", "points=random",
    ])  # fmt: skip
    row = run(tmp_path, "--envs", "mdp2", "--methods", f"nfdrl-s[{words}]")["rows"][0]  # warnings are errors
    shown = capsys.readouterr().out
    assert all(f"{row[name]:.4f}" in shown for name in ("cramer", "w1", "mean_error", "cvar_error"))


def test_an_earlier_comparison_stands_beside_a_new_one(tmp_path, capsys):
    earlier, now = tmp_path / "earlier", tmp_path / "now"
    before = run(earlier, "--envs", "mdp2,mdp1", "--methods", "dqn,c51")
    capsys.readouterr()
    words = ("--envs", "mdp2", "--methods", "qr-dqn,dqn", "--beside", str(earlier))
    found = run(now, *words)
    assert [row["method"] for row in found["rows"]] == ["qr-dqn", "dqn"]  # files hold what was computed
    shown = capsys.readouterr().out
    assert "mdp1" not in shown
    (theirs,) = (row for row in before["rows"] if (row["env"], row["method"]) == ("mdp2", "c51"))
    assert f"{theirs['cramer']:.4f}" in shown
    assert shown.count("dqn") == 2  # qr-dqn and one dqn
    order = sorted([*found["rows"], theirs], key=lambda row: row["cramer"])
    places = [shown.index(f"│ {row['method']} ") for row in order]
    assert places == sorted(places)


def test_rows_are_drawn_nearest_first_and_a_method_that_is_not_here_is_grey():
    rows = [
        {"env": env, "method": method, "cramer": cramer, "cramer_of_seeds": [cramer], "limit": None}
        for env, method, cramer in [
            ("b", "dqn", 0.2),
            ("b", "missing:METHOD", 0.1),
            ("a", "dqn", 0.3),
            ("b", "dqn", 9.0),
        ]
    ]
    assert [row["env"] for row in nearest_first([*rows[2:3], *rows])] == ["a", "b", "b"]
    shown = nearest_first(rows)
    assert [(row["env"], row["cramer"]) for row in shown] == [("b", 0.1), ("b", 0.2), ("a", 0.3)]
    panel = comparison_figure.draw(shown).axes[0]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["missing:METHOD", "dqn"]
    assert comparison_figure.colour_of("missing:METHOD") == GREY
    assert comparison_figure.colour_of("dqn") == METHODS["dqn"].colour


@pytest.mark.parametrize("content", [None, {"experiment": "report", "rows": []}, {"experiment": "compare", "rows": []}])
def test_a_folder_without_a_comparison_of_this_kind_is_refused_before_anything_is_learned(tmp_path, capsys, content):
    if content is not None:
        (tmp_path / "metrics.json").write_text(json.dumps(content))
    words = ["--envs", "mdp2", "--methods", "dqn", "--beside", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(["compare", "--smoke", *words]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert str(tmp_path) in said
    assert not (tmp_path / "out" / "cells").exists()


def test_a_constant_rate_is_a_part_of_its_own(tmp_path):
    words = ("--envs", "mdp2", "--methods", "nfdrl-s")
    falling, constant = run(tmp_path, *words), run(tmp_path, *words, "--learning-rate-decay", "constant")
    assert [metrics["rows"][0]["learning_rate_decay"] for metrics in (falling, constant)] == ["linear", "constant"]
    assert falling["rows"][0]["cramer"] != constant["rows"][0]["cramer"]
    assert run(tmp_path, *words)["rows"][0]["cramer"] == falling["rows"][0]["cramer"]


def test_a_rate_that_forgets_its_start_is_not_stored_as_one_that_does_not(tmp_path):
    words = ("--envs", "mdp2", "--methods", "nfdrl")
    own, plain = run(tmp_path, *words), run(tmp_path, *words, "--learning-rate-decay", "cosine")
    assert [metrics["rows"][0]["learning_rate_decay"] for metrics in (own, plain)] == ["cosine", "cosine"]
    assert own["rows"][0]["cramer"] != plain["rows"][0]["cramer"]
    assert run(tmp_path, *words)["rows"][0]["cramer"] == own["rows"][0]["cramer"]


@pytest.mark.parametrize("name", list(METHODS))
def test_a_method_learns_a_table_at_its_own_rate_and_comes_down_to_it_if_it_forgets(name):
    method, times = METHODS[name], np.linspace(0, 1, 21)
    usual, fast = (PolicyLearning.of(method, 10, 8, factor * method.tabular_rate) for factor in (1, 5))
    rates, faster = ([learning.rate(float(t)) for t in times] for learning in (usual, fast))
    assert rates[0] == method.tabular_rate
    assert PolicyLearning.of(method, 10, 8) == usual
    assert all(now > after for now, after in pairwise(rates))
    ratios = np.divide(faster[:-1], rates[:-1])  # both end at 0
    if method.tabular_forgets:
        assert ratios[0] == pytest.approx(5)
        assert all(now > after for now, after in pairwise(ratios))
        assert ratios[-1] < 1.5
    else:
        np.testing.assert_allclose(ratios, 5)


def test_names_too_long_for_a_file_are_stored_apart(tmp_path):
    store, long = Store(tmp_path), "nfdrl-s[" + "comparison.rooted=true," * 20
    found = [store.get(name, {}, lambda name=name: {"name": name}) for name in (long + "a", long + "b")]
    assert [one["name"][-1] for one in found] == ["a", "b"]
    assert [store.get(long + end, {}, dict)["name"][-1] for end in "ab"] == ["a", "b"]


def test_finished_cells_are_skipped_and_overwritten_on_demand(tmp_path, monkeypatch, capsys):
    words = ("--envs", "mdp1,mdp2", "--methods", "dqn,c51[atoms=5]")
    first = run(tmp_path, *words)
    assert "c51[atoms=5]" in capsys.readouterr().out  # brackets are no markup
    computed = []
    original = comparison.run_cell
    monkeypatch.setattr(comparison, "run_cell", lambda *args: computed.append(args[1].label) or original(*args))
    again = run(tmp_path, *words)
    assert computed == []
    assert [row["cramer"] for row in again["rows"]] == [row["cramer"] for row in first["rows"]]
    run(tmp_path, *words, "--discount", "0.5")
    assert len(computed) == 4
    run(tmp_path, *words, "--discount", "0.5", "--overwrite")
    assert len(computed) == 8


def test_a_broken_cell_is_computed_again(tmp_path):
    store = Store(tmp_path)
    store.get("cell", {"seed": 0}, lambda: {"value": 1})
    (tmp_path / "cell.json").write_text("{")
    assert store.get("cell", {"seed": 0}, lambda: {"value": 2}) == {"value": 2}


def test_methods_and_environments_take_settings():
    assert contender("c51[atoms=13]").method.atoms == 13
    assert contender("qr-dqn[quantiles=13]").method.quantiles == 13
    flow = contender("nfdrl-s[components=8, comparison.bandwidth=0.05]").method
    assert (flow.components, flow.comparison.bandwidth, flow.comparison.kind) == (8, 0.05, "surrogate")
    assert finite_mdp("FrozenLake-v1[map_name=8x8,is_slippery=false]").n_states == 64
    assert finite_mdp("mdp2[p=0.75]").rows.probability.tolist() == [0.75, 0.25]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--methods", "c52"], "did you mean 'c51'"),
        (["--methods", "c51[atom=13]"], "did you mean 'atoms'? (known: atoms, v_min, v_max)"),
        (["--methods", "nfdrl-s[comparison.bandwith=1]"], "did you mean 'bandwidth'"),
        (["--methods", "nfdrl-s[comparison=1]"], "unknown comparison '1': known: exact, surrogate, l2"),
        (["--methods", "c51[atoms=many]"], "cannot be 'many'"),
        (["--methods", "c51[atoms]"], "NAME=VALUE"),
        (["--methods", "c51[atoms=3"], "NAME[SETTING=VALUE,...]"),
        (["--methods", ","], "methods must name at least one"),
        (["--envs", "mpd3"], "did you mean 'mdp3'"),
        (["--envs", "FrozenLak-v1"], "did you mean 'FrozenLake-v1'"),
        (["--envs", "mdp2[q=0.7]"], "setting of mdp2"),
        (["--envs", "FrozenLake-v1[size=3]"], "cannot be made"),
        (["--envs", "CartPole-v1"], "no transition table"),
    ],
)
def test_a_bad_name_exits_2_in_one_line(words, said, tmp_path, capsys):
    assert main(["compare", "--smoke", "--out", str(tmp_path), *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_supports_hold_the_returns_unless_they_were_given():
    problem = Problem.of("mdp3", finite_mdp("mdp3"), 1.0)
    assert problem.returns() == (-6.0, 6.0)
    fitted = contender("c51").for_returns(-6.0, 6.0).method
    assert (fitted.v_min, fitted.v_max) == (-6.0, 6.0)
    given = contender("c51[v_max=3]").for_returns(-6.0, 6.0).method
    assert (given.v_min, given.v_max) == (-10.0, 3.0)
    assert contender("nfdrl-e").for_returns(-6.0, 2.0).method.initial_bound == 6.0


def test_the_limit_of_a_flow_on_a_flow_is_nearly_zero():
    parts = (torch.tensor([[0.5, 0.5]]), torch.tensor([[-1.0, 1.2]]), torch.tensor([[0.3, 0.4]]))
    own = FlowLaw(*parts, bound=torch.ones(1))
    truth = MixtureLaw.empirical(own.quantile(midpoints(2000, own.bound)).squeeze(0).double())
    method = contender("nfdrl-e[components=2]").method
    assert limit(method, truth) < 2e-3


def test_more_atoms_and_more_components_have_lower_limits():
    def limit_of(word):
        return limit(contender(word).for_returns(-6.0, 6.0).method, SMOOTH)

    for name, sizes in (("c51[atoms={}]", (5, 13, 51)), ("qr-dqn[quantiles={}]", (5, 13, 51))):
        limits = [limit_of(name.format(size)) for size in sizes]
        assert limits == sorted(limits, reverse=True)
    assert limit_of("nfdrl-s[components=4]") < limit_of("nfdrl-s[components=1]")
    assert limit_of("umdqn") < limit_of("c51")


def test_limits_of_two_atoms_by_hand():
    # A Dirac at the mean 0.55 leaves ½ over a width of ½: (0.25·0.5)^½. Two quantiles are the atoms themselves.
    assert limit(METHODS["dqn"], TWO) == pytest.approx(0.125**0.5)
    assert limit(contender("qr-dqn[quantiles=2]").method, TWO) < 1e-2
    # 0.3 lies half way between atoms 0.2 and 0.4, 0.8 on an atom: ½·½ is missing over 0.1 twice, (2·0.1·0.0625)^½.
    method = contender("c51[atoms=6,v_min=0,v_max=1]").method
    assert limit(method, TWO) == pytest.approx(0.0125**0.5, abs=2e-3)
    assert METHODS["iqn"].best_law([TWO], FIT, silent) is None


def test_imputed_expectiles_keep_the_mean():
    law = METHODS["er-dqn"].best_law([TWO, SMOOTH], FIT, silent)
    np.testing.assert_allclose(law.mean(), [0.55, 0.0], atol=1e-6)


@pytest.mark.parametrize(("name", "laws"), [("mdp3", 6), ("frozenlake", 44 + 1)])
def test_the_experiments_on_exact_laws_measure_each_of_them(name, laws):
    with Progress(enabled=False) as progress:
        result = load(name).compute(0, True, progress)
    assert len(result.rows) == laws
    assert all(np.isfinite(float(row[key])) for row in result.rows for key in ("cramer", "w1", "mean_error"))


def test_every_panel_of_frozenlake_is_labelled_with_the_distance_of_its_own_pair():
    with Progress(enabled=False) as progress:
        result = load("frozenlake").compute(0, True, progress)
    wanted = {(row["state"], row["action"]): f"ℓ₂ = {float(row['cramer']):.3f}" for row in result.rows}
    panels = load("frozenlake").draw(result).subfigs[1].axes
    states = sorted({state for state, _ in wanted if state != "all"})
    shown = {
        (state, "←↓→↑"[action]): ax.get_title(loc="right")
        for ax, (state, action) in zip(panels, ((s, a) for s in states for a in range(4)), strict=True)
    }
    del wanted["all", "mean"]
    assert shown == wanted
    assert len(set(shown.values())) > 10


def test_only_prominent_modes_are_counted():
    assert modes(SMOOTH) == (2, pytest.approx(np.exp(-2) / 0.5, rel=0.1))  # φ(2) over ½φ(0)
    assert modes(MixtureLaw.atoms([1.0], [1.0])) == (1, None)


@pytest.mark.parametrize("truth", [TWO, SMOOTH])
def test_a_law_compared_with_itself_is_at_distance_zero(truth):
    for value in batch_distances(truth, [truth]).values():
        assert value[0] < 1e-3


def test_no_seeds_and_no_updates_are_refused(tmp_path):
    problem, dqn = Problem.of("mdp1", finite_mdp("mdp1"), 0.9), Contender("dqn", METHODS["dqn"])
    with pytest.raises(NfdrlError, match="seeds"):
        list(comparison.compare([problem], [dqn], 0, SMALL, Store(tmp_path), silent))
    with pytest.raises(NfdrlError, match="updates must be at least 1"):
        Budget(updates=0)


def test_the_limit_of_a_flow_on_two_atoms_falls_with_refining():
    """The best law lies at infinity, where the loss is flat: plain descent stops far from it."""
    refined = limit(METHODS["nfdrl-e"], TWO)
    plain = limit(METHODS["nfdrl-e"], TWO, replace(FIT, refining=0))
    assert refined < 0.8 * plain


def test_learning_on_a_table_gives_the_same_bits_on_any_number_of_threads():
    mdp, settings, weights = finite_mdp("FrozenLake-v1"), PolicyLearning(200, 128), []
    for count in (1, 2):
        with threadpool_limits(count, user_api="blas"):
            learned = learn_policy_laws(mdp, mdp.optimal_policy(0.95), METHODS["nfdrl-s"], settings, discount=0.95)
        weights.append(learned.network.head.linear.weight)
    assert torch.equal(*weights)
