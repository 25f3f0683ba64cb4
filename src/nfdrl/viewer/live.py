"""An agent that plays now: steps to the page, wishes from it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from starlette.websockets import WebSocket, WebSocketDisconnect

from nfdrl.agent import Agent
from nfdrl.envs.watching import EnvironmentFailure, at_step
from nfdrl.errors import NfdrlError
from nfdrl.progress import say
from nfdrl.risk import Risk, parse_risk
from nfdrl.runs import layout
from nfdrl.threads import threads
from nfdrl.viewer.folders import FoundRun
from nfdrl.viewer.messages import read, to_text
from nfdrl.viewer.packing import pack_laws
from nfdrl.viewer.recording import laws_of, state_table
from nfdrl.viewer.schema import Command, Hello, Step
from nfdrl.viewer.stage import Stage

T = TypeVar("T")
SEED = 10_000
SPEEDS = 0.1, 240.0  # steps per second
BETWEEN = 1.0  # seconds between two episodes
MOST_STEPS = 5_000  # of an episode that does not end
LONGEST = 512  # characters of a wish
REASON = 120  # bytes of the reason for which a connection is closed


@dataclass(frozen=True)
class Wishes:
    """What the page has asked for so far."""

    playing: bool = False
    speed: float = 30.0
    steps: int = 0
    seed: int = SEED
    fresh: bool = True
    risk: Risk | None = None

    def after(self, command: Command) -> Wishes:
        """The wishes after one more; those that make no sense are refused."""
        changed = self
        if command.playing is not None:
            changed = replace(changed, playing=command.playing, steps=0)
        if command.speed is not None:
            changed = replace(changed, speed=min(max(command.speed, SPEEDS[0]), SPEEDS[1]))
        if command.steps is not None:
            changed = replace(changed, playing=False, steps=min(max(command.steps, 0), 100))
        if command.seed is not None:
            if not 0 <= command.seed < 2**31:
                raise NfdrlError(f"seed must lie in 0..{2**31 - 1}, got {command.seed}")
            changed = replace(changed, seed=command.seed, fresh=True)
        return changed if command.risk is None else replace(changed, risk=parse_risk(command.risk))


class Worker:
    """A thread that does one job after another. If it hangs, the program can still end, unlike with an executor's."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        Thread(target=self._run, name="nfdrl-play", daemon=True).start()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Do this after all earlier jobs."""
        future: Future[T] = Future()
        self._jobs.put((work, future))
        return future

    def stop(self) -> None:
        """End the thread after the jobs that it has."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, future = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except BaseException as error:  # for whoever waits
                future.set_exception(error)


class Session:
    """One page that watches one agent. The agent and its environment stay in one thread of their own."""

    def __init__(self, socket: WebSocket, run: FoundRun, load: Callable[[Path], Agent]) -> None:
        self.socket, self.run, self._load = socket, run, load
        self.wishes, self._changed = Wishes(), asyncio.Event()
        self._worker = Worker()
        self._stage: Stage | None = None
        self._source: Path | None = None
        self._t, self._hung, self._limit = 0, False, 0.0

    async def serve(self) -> None:
        """Play until the page is closed."""
        try:
            await self._send(await self._in_thread(self._open))
            listening, playing = asyncio.create_task(self._listen()), asyncio.create_task(self._play())
            done, rest = await asyncio.wait({listening, playing}, return_when=asyncio.FIRST_COMPLETED)
            for task in rest:
                task.cancel()
            for task in done:
                task.result()
        except (WebSocketDisconnect, RuntimeError):
            pass  # the page was closed
        except NfdrlError as error:
            if isinstance(error, EnvironmentFailure):
                say(f"{self.run.card.name}: {error}")
            with suppress(WebSocketDisconnect, RuntimeError):  # the page may be closed by now
                await self.socket.close(1008, str(error).encode()[:REASON].decode(errors="ignore"))
        finally:
            if not self._hung:
                await self._in_thread(self._close)
            self._worker.stop()

    async def _in_thread(self, work: Callable[[], T], limit: float = 0) -> T:
        """The result of a job; only here can one that hangs be noticed, as alarms ring in the main thread alone."""
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self._worker.submit(work)), limit or None)
        except asyncio.TimeoutError:
            self._hung = True
            where = f"in the episode with seed {self.wishes.seed}, {at_step(self._t)}"
            raise EnvironmentFailure(f"the environment hung {where}: it took more than {limit:g} s") from None

    async def _send(self, message: Any) -> None:
        await self.socket.send_text(to_text(message))

    async def _listen(self) -> None:
        while True:
            text = await self.socket.receive_text()
            if len(text) > LONGEST:
                raise NfdrlError(f"a message must have at most {LONGEST} characters, got {len(text)}")
            try:
                command = read(Command, json.loads(text))
            except ValueError as error:  # of JSON, or ours
                raise NfdrlError(f"not a message of the page: {error}") from None
            self.wishes = self.wishes.after(command)
            self._changed.set()

    async def _play(self) -> None:
        due = time.monotonic()
        while True:
            if not (self.wishes.playing or self.wishes.steps > 0):
                self._changed.clear()
                await self._changed.wait()
                due = time.monotonic()
                continue
            step = await self._in_thread(self._step, self._limit)
            if isinstance(step, Hello):
                await self._send(step)
                continue
            if self.wishes.steps > 0:
                self.wishes = replace(self.wishes, steps=self.wishes.steps - 1)
            await self._send(step)
            pause = 1 / self.wishes.speed if step.end == "running" else BETWEEN
            due = max(due + pause, time.monotonic())  # late steps are not made up for
            await asyncio.sleep(due - time.monotonic())

    def _open(self) -> Hello:
        """Load the newest agent."""
        self._source = layout.locate(self.run.folder)
        agent = self._load(self.run.folder)
        self._close()
        self._stage, limits = Stage(agent), agent.config.limits()
        self._limit = limits.reset + limits.step if limits.reset and limits.step else 0.0
        with threads(1):
            table = state_table([self._stage], [self.run])
        return Hello(self._stage.card(self.run.card, self.run.dormant()), table)

    def _step(self) -> Step | Hello:
        """One step; at the end of an episode the next seed, and the newest agent if there is a newer one."""
        stage = self._stage
        assert stage is not None
        ended = stage.over and not self.wishes.fresh
        if ended:
            self.wishes = replace(self.wishes, seed=self.wishes.seed + 1, fresh=True)
            if layout.locate(self.run.folder) != self._source:
                return self._open()
        if self.wishes.fresh:
            stage.reset(self.wishes.seed)
            self.wishes, self._t = replace(self.wishes, fresh=False), 0
        risk = self.wishes.risk if self.wishes.risk != stage.agent.risk else None
        with threads(1):
            moment = stage.step(risk)
            laws = pack_laws(laws_of(stage.agent, [moment.observation]))
        self._t += 1
        end = moment.end
        if end == "running" and self._t >= MOST_STEPS:
            end = "cut off"
            self.wishes = replace(self.wishes, seed=self.wishes.seed + 1, fresh=True)
        chosen_by = str(self.wishes.risk or stage.agent.risk)
        return Step(
            self._t - 1, self.wishes.seed, moment.action, moment.reward, moment.learned_reward, moment.ends,
            moment.state, laws, moment.picture, end, chosen_by,
        )  # fmt: skip

    def _close(self) -> None:
        if self._stage is not None:
            self._stage.close()
            self._stage = None
