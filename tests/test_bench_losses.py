"""The benchmark of the losses in its small form: what it writes, not how fast anything is."""

import json
import math

import pytest
import torch
from torch.testing import assert_close

from nfdrl.bench import losses
from nfdrl.bench.literal import kernel_density
from nfdrl.bench.report import Row, growth_exponent
from nfdrl.cli import main
from nfdrl.errors import NfdrlError
from nfdrl.numerics.kde import KERNELS
from nfdrl.threads import threads

KEYS = {"what", "size", "batch", "seconds", "bytes", "ratio", "note"}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench") / "made" / "when needed"
    assert main(["bench", "losses", "--out", str(folder), "--seed", "3", "--smoke"]) == 0
    return folder


def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")


@pytest.fixture(scope="module")
def metrics(out):
    return json.loads((out / "metrics.json").read_text(encoding="utf-8"), parse_constant=refuse)


def test_every_form_has_a_row_at_every_size(metrics):
    rows = metrics["rows"]
    assert {(row["what"], row["size"]) for row in rows} == {
        (form.what, size) for form in losses.FORMS for size in losses.SMOKE_SIZES
    }
    for row in rows:
        assert set(row) == KEYS
        assert all(math.isfinite(row[key]) and row[key] > 0 for key in ("batch", "seconds", "bytes", "ratio"))
        assert row["note"] == ""


def test_a_ratio_is_the_time_of_the_literal_form_over_that_of_ours(metrics):
    seconds = {(row["what"], row["size"]): row["seconds"] for row in metrics["rows"]}
    reference = {form.what: form.reference for form in losses.FORMS}
    for row in metrics["rows"]:
        assert row["ratio"] == pytest.approx(seconds[reference[row["what"]], row["size"]] / row["seconds"])


def test_metrics_name_machine_command_and_versions(metrics):
    assert set(metrics) == {"bench", "seed", "version", "date", "seconds", "hardware", "command", "rows", "summary"}
    assert (metrics["bench"], metrics["seed"]) == ("losses", 3)
    assert set(metrics["hardware"]) == {"cpu", "cores", "threads", "system", "torch", "python", "numba"}
    assert metrics["hardware"]["threads"] == 1
    assert metrics["command"].startswith("nfdrl bench losses --out ")
    assert metrics["command"].endswith("--seed 3 --smoke")


def test_the_figure_is_written_as_png_and_svg(out):
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (out / "figure.svg").read_text(encoding="utf-8")


def test_a_fitted_exponent_recovers_a_power_law():
    sizes = [50, 200, 500, 3000]
    assert growth_exponent(sizes, [7e-6 * n**1.7 for n in sizes]) == pytest.approx(1.7)
    assert growth_exponent(sizes, [4.0 for _ in sizes]) == pytest.approx(0)
    # A fixed cost on top of a linear one looks like less than linear growth.
    assert 0 < growth_exponent(sizes, [100 + n for n in sizes]) < 1


def known_row(form, size, ran=True):
    quadratic = not form.ours
    cost = 3.0 * size ** (2 if quadratic else 1)
    numbers = (1e-6 * cost, int(cost), size / 4) if ran else ()
    return Row(form.what, size, losses.BATCH, *numbers, note="" if ran else "skipped")


def test_a_summary_fits_only_the_sizes_that_were_run():
    rows = [known_row(form, size, ran=form.ours or size <= 500) for size in losses.SIZES for form in losses.FORMS]
    summary = losses.summarise(rows)
    for form in losses.FORMS:
        assert summary["fitted_sizes"][form.what] == ([500, 1000, 2000, 4000, 8000] if form.ours else [100, 200, 500])
        assert summary["exponent_seconds"][form.what] == pytest.approx(1 if form.ours else 2)
        assert summary["exponent_bytes"][form.what] == pytest.approx(1 if form.ours else 2, abs=1e-3)
    assert summary["speedup_size"] == 500
    assert summary["speedup"] == {form.what: 125 for form in losses.FORMS if form.ours}
    time, memory = losses.draw(rows).axes
    assert time.get_xscale() == time.get_yscale() == memory.get_yscale() == "log"


def test_a_form_that_needs_too_much_memory_is_skipped_with_a_note(monkeypatch):
    monkeypatch.setattr(losses, "MEMORY_LIMIT", 20_000_000)  # under 100² · 64 floats of a few matrices
    lines = []
    rows = losses.run(smoke=True, seed=0, progress=lines.append)
    assert len(lines) == len(losses.SMOKE_SIZES)
    skipped = [row for row in rows if row.seconds is None]
    assert {(row.what, row.size) for row in skipped} == {("literal surrogate", 100)}
    assert skipped[0].bytes is skipped[0].ratio is None
    assert skipped[0].note.startswith("skipped: ")
    shared = next(row for row in rows if row.what == "ours shared" and row.size == 100)
    assert shared.seconds is not None
    assert shared.ratio is None  # nothing to compare with


def test_peak_memory_counts_what_lives_at_once():
    million = 1_000_000

    def one_after_the_other():
        for _ in range(3):
            torch.zeros(million, dtype=torch.float32)

    def side_by_side():
        kept = [torch.zeros(million, dtype=torch.float32) for _ in range(3)]
        del kept

    assert losses.peak_bytes(one_after_the_other) == pytest.approx(4 * million, rel=0.01)
    assert losses.peak_bytes(side_by_side) == pytest.approx(12 * million, rel=0.01)


def test_the_number_of_threads_is_restored():
    before = torch.get_num_threads()
    with threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_estimate_has_mass_one_and_the_mean_of_its_samples(kernel):
    samples, bandwidth = torch.tensor([[0.0, 1.0, 1.5]], dtype=torch.float64), 0.2
    grid = torch.linspace(-6, 8, 14_001, dtype=torch.float64).unsqueeze(0)
    density = kernel_density(grid, samples, bandwidth, kernel)
    assert_close(torch.trapezoid(density, grid), torch.ones(1, dtype=torch.float64), rtol=0, atol=1e-5)
    assert_close(torch.trapezoid(grid * density, grid), samples.mean(-1), rtol=0, atol=1e-5)


def test_an_unknown_kernel_is_refused():
    with pytest.raises(NfdrlError, match="did you mean 'gaussian'"):
        kernel_density(torch.zeros(1), torch.zeros(1), 1.0, "gausian")
