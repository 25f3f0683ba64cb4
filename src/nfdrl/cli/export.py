"""`nfdrl export`: a trained agent as a file that runs without nfdrl."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from nfdrl.errors import NfdrlError
from nfdrl.files import check_file_name

if TYPE_CHECKING:
    from nfdrl.agent import Agent
    from nfdrl.export import Policy
    from nfdrl.networks import TorsoLike

CHECKED = 1_000  # observations on which the file is compared with the agent
TOLERANCE = 1e-5  # of the largest return


@dataclass(frozen=True)
class Export:
    """Write a trained agent's policy as an ONNX file and check it against the agent.

    The file maps observations to actions, the mean return of every action, and its law at `levels`. Example:
    `nfdrl export out/cartpole --onnx cartpole.onnx --levels 0.05 0.5 cvar:0.1`.
    """

    run_folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder that `nfdrl train` or `Agent.save` wrote."""

    onnx: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """The file to write."""

    levels: tuple[str, ...] = ("0.05", "0.5", "0.95")
    """What else to tell of each law: numbers are quantiles, words are risk functionals, such as cvar:0.1."""

    risk: str | None = None
    """What actions are chosen by: mean, cvar:0.1, …; by default as in training."""

    method: str | None = None
    """package.module:METHOD if the run's method is your own: loading by itself imports nothing."""

    torso: str | None = None
    """package.module:TORSO if the run's torso is your own."""

    def run(self) -> int:
        from nfdrl.agent import Agent
        from nfdrl.export import need_onnx, write_onnx
        from nfdrl.laws import find_method
        from nfdrl.runs import checkpoint
        from nfdrl.runs.layout import locate

        need_onnx()
        if self.onnx.exists():
            raise NfdrlError(f"{str(self.onnx)!r} exists: name another file")
        check_file_name(self.onnx)
        method = None if self.method is None else find_method(self.method)
        torso = None if self.torso is None else _imported(self.torso)
        agent = Agent.load(  # spaces are enough: no environment is made
            self.run_folder, False, method=method, risk=self.risk, torso=torso, device="cpu", replay=False
        )
        name = checkpoint.read(locate(self.run_folder)).config["env"]
        policy = agent.policy(self.levels)
        self.onnx.parent.mkdir(parents=True, exist_ok=True)
        notes = {"method": agent.method.name, "env": str(name), "risk": str(agent.risk)}
        write_onnx(policy, self.onnx, notes | {"levels": " ".join(policy.columns.names), "step": str(agent.step)})
        self._check(agent, policy)
        inputs = ", ".join(f"{name} {('rows', *shape)}" for name, shape in policy.inputs.items()).replace("'", "")
        print(f"{self.onnx}: {inputs} → action, mean, levels ({', '.join(policy.columns.names)})")
        return 0

    def _check(self, agent: Agent, policy: Policy) -> None:
        """Refuse, and remove, a file that does not say what the agent says."""
        from nfdrl.export import difference, random_observations

        gap, changed = difference(policy, self.onnx, random_observations(agent.observation_space, CHECKED))
        if not gap <= TOLERANCE or changed:
            self.onnx.unlink()
            raise NfdrlError(
                f"the file differs from the agent by {gap:.1g} of the largest return, in {changed} actions"
            )
        print(f"checked on {CHECKED:,} observations: the same actions, numbers within {gap:.1g} of the largest return")


def _imported(word: str) -> TorsoLike:
    module, _, name = word.partition(":")
    try:
        found: TorsoLike = getattr(import_module(module), name)
    except (Exception, SystemExit) as error:  # whatever a module does when it is imported
        said = " ".join(str(error).split())[:200]
        raise NfdrlError(f"torso {word!r:.80} cannot be imported: {type(error).__name__}: {said}") from None
    return found
