"""`nfdrl watch`: the page of a folder of runs, live."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from nfdrl.errors import NfdrlError

if TYPE_CHECKING:
    from nfdrl.agent import Agent

PARTS = ("starlette", "uvicorn", "websockets")


@dataclass(frozen=True)
class Watch:
    """Show a run or a folder of runs in the browser: agents that play now, curves that grow while they train.

    Nothing can be written or executed through the page. Only this machine can open it, unless --host says otherwise.

    Examples: `nfdrl watch out`, `nfdrl watch out/cartpole --port 8000`.
    """

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")] = Path("out")
    """A run, or a folder with runs at any depth."""

    host: str = "127.0.0.1"
    """Address to listen on; any but this machine's own needs the token that is then printed."""

    port: int = 8642
    """Port to listen on; 0 for any that is free."""

    allow_host: tuple[str, ...] = ()
    """More names by which this machine may be called, if browsers reach it through a proxy or by a name."""

    method: str | None = None
    """package.module:METHOD if the runs' method is your own: loading by itself imports nothing."""

    def run(self) -> int:
        if not self.folder.is_dir():
            raise NfdrlError(f"there is no folder {str(self.folder)!r}")
        if not 0 <= self.port < 1 << 16:
            raise NfdrlError(f"port must lie in 0..65,535, got {self.port}")
        if any(find_spec(part) is None for part in PARTS):
            raise NfdrlError('the live page needs an extra: pip install "nfdrl[viewer]"; `nfdrl page` needs none')
        from nfdrl.agent import Agent
        from nfdrl.laws import find_method
        from nfdrl.viewer.server import serve

        method = None if self.method is None else find_method(self.method)

        def load(path: Path) -> Agent:
            return Agent.load(path, method=method, device="cpu", replay=False)

        def said(address: str) -> None:
            print(f"open {address} (Ctrl-C stops)", flush=True)

        serve(self.folder, load, self.host, self.port, self.allow_host, said)
        return 0
