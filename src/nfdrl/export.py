"""A trained agent as a plain module, and as an ONNX file that runs without nfdrl and without PyTorch."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nfdrl.bellman import Valuation
from nfdrl.errors import NfdrlError
from nfdrl.files import replace_file
from nfdrl.laws.base import Law, Method
from nfdrl.networks import Network
from nfdrl.numerics import elementary
from nfdrl.observations import WHOLE, Observation, as_rows, as_tensors, stack
from nfdrl.risk import CVaR, Risk, VaR, parse_risk

Array = NDArray[Any]
OUTPUTS = ("action", "mean", "levels")
LARGEST = 100.0  # number in a random observation
aten = torch.ops.aten


class Policy(nn.Module):
    """Observations → the actions, the mean return of every action, and further numbers of its law.

    `levels` are numbers, which stand for quantiles, or words for risk functionals such as `cvar:0.1`. The weights are a
    copy: later training does not change them. Nothing is random: the same observation gives the same numbers.

    Shapes: (B, ...) → (B,), (B, A), (B, A, K)
    """

    def __init__(
        self,
        network: Network,
        method: Method,
        risk: Valuation,
        levels: Sequence[float | str],
        *,
        blank: Observation,
        start: int = 0,
    ) -> None:
        super().__init__()
        self.network = _detached(network)
        self.method, self.risk, self.start = method, risk, start
        self.columns = Columns(levels)
        self._blank = blank  # one observation, for shapes and dtypes

    @torch.no_grad()
    def values(self, observation: Observation) -> Tensor:
        """What actions are chosen by; shape (B, A)."""
        return self.method.value(self.network(self._typed(observation)), self.risk)

    @torch.no_grad()
    def forward(self, observation: Observation) -> tuple[Tensor, Tensor, Tensor]:
        """Actions as the environment counts them, means, and the numbers that `levels` name."""
        law = self.network(self._typed(observation))
        action = self.method.value(law, self.risk).argmax(-1) + self.start
        return action, law.mean(), self.columns(law)

    def _typed(self, observation: Observation) -> Any:
        """Observations in the dtypes in which the agent sees them."""
        if isinstance(self._blank, Tensor):
            assert isinstance(observation, Tensor)
            return observation.to(self._blank.dtype)
        assert isinstance(observation, dict)
        return {name: observation[name].to(blank.dtype) for name, blank in self._blank.items()}

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """The inputs of an exported file: the observation, or its parts by name, and the shape of each."""
        parts = {WHOLE: self._blank} if isinstance(self._blank, Tensor) else self._blank
        return {name: tuple(part.shape[1:]) for name, part in parts.items()}

    def example(self, rows: int = 2) -> Observation:
        """Observations of zeros, to trace with."""
        device = next(self.network.parameters()).device

        def repeated(part: Tensor) -> Tensor:
            return part.repeat(rows, *[1] * (part.ndim - 1)).to(device)

        if isinstance(self._blank, Tensor):
            return repeated(self._blank)
        return {name: repeated(part) for name, part in self._blank.items()}

    def export(self) -> torch.export.ExportedProgram:
        """What `torch.export` makes of it, for any number of rows."""
        example = self.example()  # not of one row, which PyTorch's tracer would take for the only number
        rows = torch.export.Dim("rows", min=1, max=2**31 - 1)
        shapes = {0: rows} if isinstance(example, Tensor) else {name: {0: rows} for name in example}
        try:
            with _quiet_torch():
                return torch.export.export(self, (example,), dynamic_shapes=(shapes,))
        except Exception as error:  # whatever the tracer and the module's own code raise
            reason = str(error).strip().partition("\n")[0]
            raise NfdrlError(f"torch.export cannot trace this policy: {reason}") from None


def _detached(network: Network) -> Network:
    """A copy in memory of its own, without gradients, ready to predict."""
    copied = copy.deepcopy(network).requires_grad_(False).eval()
    for parameter in copied.parameters():
        parameter.grad = None
        parameter.data = parameter.data.clone()
    return copied


class Columns:
    """Numbers of a law side by side: all quantiles in one call, all CVaRs in another, then other functionals."""

    def __init__(self, levels: Sequence[float | str]) -> None:
        self.functionals = [_functional(level) for level in levels]
        if not self.functionals:
            raise NfdrlError("a policy needs at least one level, such as 0.05 or 'cvar:0.1'")

    @property
    def names(self) -> tuple[str, ...]:
        """What each column is."""
        return tuple(map(str, self.functionals))

    def __call__(self, law: Law) -> Tensor:
        """Shape batch_shape + (K,)."""
        like = law.reference
        taus = {k: risk.tau for k, risk in enumerate(self.functionals) if isinstance(risk, VaR)}
        alphas = {k: risk.alpha for k, risk in enumerate(self.functionals) if isinstance(risk, CVaR) and risk.alpha < 1}
        columns: dict[int, Tensor] = {}
        for function, points in ((law.quantile, taus), (law.cvar, alphas)):
            if points:
                values = function(torch.tensor([*points.values()], dtype=like.dtype, device=like.device))
                columns |= zip(points, values.unbind(-1), strict=True)
        return torch.stack([columns[k] if k in columns else f(law) for k, f in enumerate(self.functionals)], -1)


def _functional(level: float | str) -> Risk:
    """A quantile for a number, a risk functional for a word."""
    try:
        tau = float(level)
    except ValueError:
        return parse_risk(str(level))
    return VaR(tau)


def write_onnx(policy: Policy, path: str | Path, notes: Mapping[str, str] | None = None) -> None:
    """Write the policy as an ONNX file for any number of rows; `notes` become its metadata.

    The inputs are `observation`, or one per part of it; the outputs `action`, `mean` and `levels`.
    """
    need_onnx()
    from onnxscript import optimizer

    program = policy.export()
    with _quiet_torch():
        program = program.run_decompositions(_decompositions())
        made = torch.onnx.export(program, dynamo=True, optimize=False, verbose=False)
        assert made is not None
        # No rewriting beyond that: the default rules take 1 − 4ε for 1, and atoms of equal mass for their neighbours.
        optimizer.fold_constants(made.model)
        optimizer.remove_unused_nodes(made.model)
    _rename(made.model.graph, [*policy.inputs], OUTPUTS)
    made.model.metadata_props.update(notes or {})
    replace_file(Path(path), made.model_proto.SerializeToString())


def _rename(graph: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Name inputs and outputs; values inside the graph that have such a name get another."""
    taken = {*inputs, *outputs}
    for node in graph:
        for value in node.outputs:
            if value.name in taken:
                value.name = f"inner.{value.name}"
    for values, names in ((graph.inputs, inputs), (graph.outputs, outputs)):
        for value, name in zip(values, names, strict=True):
            value.name = name


class OnnxPolicy:
    """An ONNX file that `write_onnx` wrote, run by ONNX Runtime on NumPy arrays."""

    def __init__(self, path: str | Path) -> None:
        need_onnx()
        import onnxruntime

        self.session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def __call__(self, rows: Array) -> tuple[Array, Array, Array]:
        """Actions, means and levels of an array of observations, of which each part is an input."""
        parts = rows.dtype.names
        inputs = {WHOLE: rows} if parts is None else {name: rows[name].copy() for name in parts}
        action, mean, levels = self.session.run([*OUTPUTS], inputs)
        return action, mean, levels


def need_onnx() -> None:
    """Refuse to continue without the packages that write and run ONNX files."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        if find_spec(name) is None:
            raise NfdrlError(f'ONNX files need {name}, which is not installed: pip install "nfdrl[export]"')


def _decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's own table, and what ONNX or its runtime lacks."""
    table: dict[Any, Callable[..., Any]] = dict(torch.export.default_decompositions())
    return table | {
        aten.erf.default: _only_double(elementary.erf),
        aten.erfc.default: elementary.erfc,
        aten.special_log_ndtr.default: elementary.log_ndtr,
        aten.special_ndtri.default: elementary.ndtri,
        aten.cumsum.default: _cumsum,
        aten.searchsorted.Tensor: _searchsorted,
        aten.cummax.default: elementary.cummax,
        aten.cummin.default: elementary.cummin,
    }


def _only_double(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Any]:
    """For functions that the runtime has in single precision."""
    return lambda x: function(x) if x.dtype == torch.float64 else NotImplemented


def _cumsum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    return elementary.cumsum(x, dim) if x.dtype == torch.float32 and dtype is None else NotImplemented


def _searchsorted(
    ordered: Tensor,
    values: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: Any = None,
    sorter: Any = None,
) -> Tensor:
    assert sorter is None
    found = elementary.searchsorted(ordered, values, right=right or side == "right")
    return found.int() if out_int32 else found


@contextmanager
def _quiet_torch() -> Iterator[None]:
    """PyTorch's exporters tell of changes in PyTorch and of packages that nobody needs: nothing a user can act on."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def random_observations(space: gymnasium.Space[Any], count: int, seed: int = 0) -> Array:
    """An array of observations drawn from the space."""
    drawn = copy.deepcopy(space)
    drawn.seed(seed)
    rows, _ = as_rows(space, stack(space, [drawn.sample() for _ in range(count)]))
    for column in [rows] if rows.dtype.names is None else [rows[name] for name in rows.dtype.names]:
        if column.dtype.kind == "f":
            np.clip(column, -LARGEST, LARGEST, out=column)  # bounds may be those of the dtype
    return rows


def difference(policy: Policy, path: str | Path, rows: Array) -> tuple[float, int]:
    """How far a file's numbers are from the policy's, in units of the largest return, and how many actions differ.

    Actions count where the values of the two best differ by more than two numbers may: twice 1e-5 of that unit.
    """
    observation = as_tensors(rows)
    action, *numbers = (part.numpy(force=True) for part in policy(observation))
    found_action, *found = OnnxPolicy(path)(rows)
    scale = max(1.0, *(float(np.abs(part).max()) for part in numbers))
    gap = (
        max(float(np.nan_to_num(np.abs(a - b), nan=np.inf).max()) for a, b in zip(numbers, found, strict=True)) / scale
    )
    values = np.sort(policy.values(observation).numpy(force=True), -1)
    clear = values[:, -1] - values[:, -2:].min(-1) > 2e-5 * scale
    return gap, int(((action != found_action) & clear).sum())
