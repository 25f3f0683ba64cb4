"""The live page: a small server that shows a folder of runs and writes nothing."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from nfdrl.agent import Agent
from nfdrl.envs.watching import EnvironmentFailure
from nfdrl.errors import NfdrlError
from nfdrl.progress import say
from nfdrl.runs import layout
from nfdrl.threads import threads
from nfdrl.viewer.document import asset
from nfdrl.viewer.folders import IMAGES, FoundFigure, FoundRun, find_figures, find_runs, read_curve
from nfdrl.viewer.guard import Guard, Rules
from nfdrl.viewer.live import SEED, Session
from nfdrl.viewer.messages import to_text
from nfdrl.viewer.recording import probe_table, ridge_of, state_table
from nfdrl.viewer.schema import Runs
from nfdrl.viewer.stage import Stage

STATIC = {"page.js": "text/javascript", "page.css": "text/css"}
MOST_PLAYERS = 4
MOST_COMPARED = 12
LOOK_AGAIN = 2.0  # seconds after which the folder is searched again

Load = Callable[[Path], Agent]
T = TypeVar("T")


class Folder:
    """What is in the folder, looked up at most every few seconds; everything is found by id."""

    def __init__(self, root: Path, load: Load) -> None:
        self.root, self.load = root, load
        self._runs: dict[str, FoundRun] = {}
        self._looked = -LOOK_AGAIN
        self._made: dict[str, tuple[Any, str]] = {}  # by what was asked for: what it was made from, and the answer

    def runs(self) -> dict[str, FoundRun]:
        """All runs by id."""
        if time.monotonic() - self._looked >= LOOK_AGAIN:
            self._runs, self._looked = find_runs(self.root), time.monotonic()
        return self._runs

    def figures(self) -> dict[str, FoundFigure]:
        """All figures by id."""
        return find_figures(self.root)

    def curves(self, have: str) -> list[dict[str, Any]]:
        """The rows of all runs that the page does not have; `have` is `id:bytes,…`."""
        known = dict(part.partition(":")[::2] for part in have.split(",") if part)
        offsets = {run: int(text) if text.isdecimal() else 0 for run, text in known.items()}
        curves = (read_curve(run, offsets.get(key, 0)) for key, run in self.runs().items())
        return [asdict(curve) for curve in curves if curve is not None]

    def table(self, run: FoundRun) -> str:
        """All agents of a run's environment in the same states, as JSON."""
        others = [one for one in self.runs().values() if one.card.env == run.card.env and one.card.playable]
        others = others[:MOST_COMPARED]
        made_from = [layout.locate(one.folder) for one in others]
        return self._once(f"table {run.card.env}", made_from, lambda: self._table(others))

    def _table(self, runs: list[FoundRun]) -> str:
        stages: list[Stage] = []
        loaded = []
        for run in runs:
            with suppress(NfdrlError):  # damaged, or written at this moment
                stages.append(Stage(self.load(run.folder), pictures=not stages))
                loaded.append(run)
        if not stages:
            return "null"
        try:
            return to_text(state_table(stages, loaded) or probe_table(stages, loaded, SEED))
        finally:
            for stage in stages:
                stage.close()

    def ridge(self, run: FoundRun) -> str:
        """The start state's law over a run's checkpoints, as JSON."""

        def make() -> str:
            ridge = ridge_of(run, self.load, SEED)
            return "null" if ridge is None else to_text(ridge)

        return self._once(f"ridge {run.card.id}", layout.checkpoints(run.folder), make)

    def _once(self, name: str, made_from: Any, make: Callable[[], str]) -> str:
        if name not in self._made or self._made[name][0] != made_from:
            with threads(1):
                self._made[name] = made_from, make()
        return self._made[name][1]


class Site:
    """What the server answers: five kinds of things to read, and agents to watch."""

    def __init__(self, folder: Folder) -> None:
        self.folder, self._players = folder, 0
        self._computing = anyio.Semaphore(1)  # of laws of many agents, so that the rest stays quick

    def routes(self) -> list[BaseRoute]:
        """Every address that exists."""
        return [
            Route("/", self.page),
            Route("/static/{name}", self.static),
            Route("/api/runs", self.runs),
            Route("/api/curves", self.curves),
            Route("/api/table/{run}", self.table),
            Route("/api/ridge/{run}", self.ridge),
            Route("/api/figures", self.figures),
            Route("/api/figure/{figure}", self.figure),
            WebSocketRoute("/api/play/{run}", self.play),
        ]

    async def page(self, _: Request) -> Response:
        """The page itself."""
        return Response(asset("page.html"), media_type="text/html")

    async def static(self, request: Request) -> Response:
        """Its script and its style."""
        name = request.path_params["name"]
        return Response(asset(name), media_type=STATIC[name]) if name in STATIC else missing()

    async def runs(self, _: Request) -> Response:
        """The list of runs."""
        found = await _work(self.folder.runs)
        return JSONResponse(asdict(Runs(self.folder.root.resolve().name, [run.card for run in found.values()])))

    async def curves(self, request: Request) -> Response:
        """The rows of metrics that the page does not have."""
        found = await _work(lambda: self.folder.curves(request.query_params.get("have", "")))
        return Response(json.dumps(found, separators=(",", ":")), media_type="application/json")

    async def table(self, request: Request) -> Response:
        """All agents of a run's environment in the same states."""
        return await self._about_run(request, self.folder.table)

    async def ridge(self, request: Request) -> Response:
        """A run's start state over training."""
        return await self._about_run(request, self.folder.ridge)

    async def _about_run(self, request: Request, make: Callable[[FoundRun], str]) -> Response:
        run = (await _work(self.folder.runs)).get(request.path_params["run"])
        if run is None:
            return missing()
        try:
            async with self._computing:
                return Response(await _work(lambda: make(run)), media_type="application/json")
        except EnvironmentFailure as error:
            say(f"{run.card.name}: {error}")
            return PlainTextResponse(str(error), 500)

    async def figures(self, _: Request) -> Response:
        """The list of figures."""
        found = await _work(self.folder.figures)
        return JSONResponse([asdict(replace(one.card, image=f"api/figure/{key}")) for key, one in found.items()])

    async def figure(self, request: Request) -> Response:
        """The picture of a figure."""
        found = (await _work(self.folder.figures)).get(request.path_params["figure"])
        return missing() if found is None else FileResponse(found.path, media_type=IMAGES[found.path.suffix])

    async def play(self, websocket: WebSocket) -> None:
        """An agent that plays for this page alone."""
        run = (await _work(self.folder.runs)).get(websocket.path_params["run"])
        await websocket.accept()
        if run is None or not run.card.playable:
            await websocket.close(1008, "there is no such agent")
        elif self._players >= MOST_PLAYERS:
            await websocket.close(1013, f"{MOST_PLAYERS} agents play already: close another page")
        else:
            self._players += 1
            try:
                await Session(websocket, run, self.folder.load).serve()
            finally:
                self._players -= 1


async def _work(job: Callable[[], T]) -> T:
    """Wait for a job in a thread."""
    return await anyio.to_thread.run_sync(job)


def missing() -> Response:
    """The answer to an id that is not known."""
    return PlainTextResponse("there is no such thing here", 404)


def serve(root: Path, load: Load, host: str, port: int, also: tuple[str, ...], said: Callable[[str], None]) -> None:
    """Listen until interrupted; `said` gets the address to open."""
    rules = Rules.for_host(host, also)
    listener = _listener(host, port)
    shown = f"[{host}]" if ":" in host else host
    token = "" if rules.token is None else f"?token={rules.token}"
    app = Guard(Starlette(routes=Site(Folder(root, load)).routes()), rules)
    config = uvicorn.Config(app, log_level="warning", ws="websockets-sansio", ws_max_size=4096, server_header=False)
    with suppress(KeyboardInterrupt):  # the way to stop a server, so not an error
        said(f"http://{shown}:{listener.getsockname()[1]}/{token}")
        uvicorn.Server(config).run(sockets=[listener])


def _listener(host: str, port: int) -> socket.socket:
    if not host:
        raise NfdrlError("the host to listen on must have a name or an address, such as 127.0.0.1")
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError, UnicodeError) as error:
        why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise NfdrlError(f"cannot listen on {host:.80}:{port}: {why}; name another --port (0: any free one)") from None
