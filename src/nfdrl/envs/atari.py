"""Atari 2600 through ALE's native vector environment, and the switches of its published protocols.

The emulator gives raw rewards; they are clipped here, so that reported returns are unclipped. A lost life ends only
the return that is learned, not the episode (ALE's own `episodic_life` would reset the whole game).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from nfdrl.envs.stepping import Step
from nfdrl.errors import NfdrlError, check_at_least, unknown_name
from nfdrl.settings import from_plain, to_plain

if TYPE_CHECKING:
    from ale_py.vector_env import AtariVectorEnv

Array = NDArray[Any]
GAME = "nfdrl.envs.atari:AtariGame"
SCREEN = (210, 160)  # pixels of a television picture


@dataclass(frozen=True)
class AtariProtocol:
    """How a game is played, and what is learned from."""

    frame_skip: int = 4  # Mnih et al. 2015: an action lasts four frames
    max_pool: bool = True  # Mnih et al. 2015: the brighter of the last two frames, against flicker
    size: int = 84  # Mnih et al. 2015: gray images of 84 × 84
    stack: int = 4  # Mnih et al. 2015: the last four of them
    noops: int = 30  # Mnih et al. 2015: at most this many frames without action at the start
    fire: bool = True  # CleanRL, on which the paper builds: press FIRE at the start if there is one
    sticky: float = 0.0  # Mnih et al. 2015: none; Machado et al. 2018: 0.25
    full_actions: bool = False  # Mnih et al. 2015: a game's own actions; Machado et al. 2018: all 18
    life_loss: bool = True  # Mnih et al. 2015: a lost life ends the return that is learned; Machado et al. 2018: no
    clip: bool = True  # Mnih et al. 2015: rewards of −1, 0, 1 in learning
    frame_limit: int = 108_000  # Mnih et al. 2015: thirty minutes per episode

    def __post_init__(self) -> None:
        check_at_least(1, frame_skip=self.frame_skip, size=self.size, stack=self.stack, frame_limit=self.frame_limit)
        check_at_least(0, noops=self.noops)
        if not 0 <= self.sticky < 1:
            raise NfdrlError(f"sticky must lie in [0, 1), got {self.sticky}")


PROTOCOLS = {
    "mnih": AtariProtocol(),
    "machado": AtariProtocol(fire=False, noops=0, sticky=0.25, full_actions=True, life_loss=False),
}


def protocol_from(settings: dict[str, Any]) -> AtariProtocol:
    """A protocol by its name, with some settings changed.

    >>> protocol_from({"protocol": "machado", "full_actions": False}).sticky
    0.25
    """
    changed = {"protocol": "mnih"} | settings
    name = str(changed.pop("protocol"))
    if name not in PROTOCOLS:
        raise unknown_name("protocol", name, PROTOCOLS)
    known = to_plain(PROTOCOLS[name])
    for key in changed:
        if key not in known:
            raise unknown_name("setting of an Atari game", key, [*known, "protocol"])
    return from_plain(AtariProtocol, known | changed, "an Atari game")


class AtariStream:
    """Games stepped by ALE's own threads; a step is a `send` and a `receive`."""

    reset_limit = 0.0  # ALE's resets end
    current = None

    def __init__(self, game: str, protocol: AtariProtocol, num_envs: int) -> None:
        self.env = native(game, protocol, num_envs, AutoresetMode.SAME_STEP)
        self.protocol, self.num_envs = protocol, num_envs
        self.observation_space = self.env.single_observation_space
        assert isinstance(self.env.single_action_space, gymnasium.spaces.Discrete)
        self.action_space = self.env.single_action_space
        self._lives: Array = np.zeros(num_envs, np.int32)
        self._sent = False

    def reset(self, seed: int | None = None) -> Array:
        """Start an episode in each environment, seeded with seed, seed + 1, …; the past does not matter."""
        if self._sent:
            self.receive()
        observation, info = self.env.reset(seed=seed)
        self._lives = info["lives"]
        return np.asarray(observation)

    def step(self, action: Array) -> Step:
        self.send(action)
        return self.receive()

    def send(self, action: Array) -> None:
        """Begin a step, which the emulators run in the background."""
        self.env.send(action)
        self._sent = True

    def receive(self) -> Step:
        """Wait for the end of the step that was begun."""
        observation, reward, terminated, truncated, info = self.env.recv()
        self._sent = False
        fresh = terminated | truncated
        lives, before = info["lives"], self._lives
        self._lives = lives
        reached = observation
        if fresh.any():
            reached = observation.copy()
            reached[fresh] = info["final_obs"][fresh]
        reward = reward.astype(np.float64)
        return Step(
            reward,
            terminated,
            truncated,
            reached,
            observation,
            fresh,
            learned_reward=np.sign(reward) if self.protocol.clip else None,
            # Some games show 0 lives for a few frames before they end.
            life_lost=(lives > 0) & (lives < before) & ~fresh if self.protocol.life_loss else None,
        )

    def close(self) -> None:
        self.env.close()


class AtariGame(gymnasium.Env[Any, Any]):
    """One game for evaluation: whole episodes, raw rewards.

    A second emulator draws it in colour: with the same seeds and actions it shows the same game.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(self, game: str, protocol: AtariProtocol, render_mode: str | None = None) -> None:
        self.render_mode, self.protocol = render_mode, protocol
        self._seen = native(game, protocol, 1, AutoresetMode.NEXT_STEP)
        self._shown = native(game, protocol, 1, AutoresetMode.NEXT_STEP, colour=True) if render_mode else None
        self._picture: Array | None = None
        self.observation_space = self._seen.single_observation_space
        self.action_space = self._seen.single_action_space
        self.metadata = self.metadata | {"render_fps": max(60 // protocol.frame_skip, 1)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        if seed is None:
            seed = int(self.np_random.integers(2**31 - 1))
        observation, info = self._seen.reset(seed=seed)
        if self._shown is not None:
            self._picture = self._shown.reset(seed=seed)[0][0, -1]
        return observation[0], {"lives": int(info["lives"][0])}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        actions = np.array([action])
        observation, reward, terminated, truncated, info = self._seen.step(actions)
        if self._shown is not None:
            self._picture = self._shown.step(actions)[0][0, -1]
        ended = bool(terminated[0]), bool(truncated[0])
        return observation[0], float(reward[0]), *ended, {"lives": int(info["lives"][0])}

    def get_action_meanings(self) -> list[str]:
        """What each action does, in the words of Gymnasium's own Atari environments."""
        return [action.name for action in self._seen.ale.get_action_set()]

    def render(self) -> Any:
        """The screen in colour; shape (210, 160, 3)."""
        return self._picture

    def close(self) -> None:
        self._seen.close()
        if self._shown is not None:
            self._shown.close()


def native(
    game: str, protocol: AtariProtocol, num_envs: int, mode: AutoresetMode, *, colour: bool = False
) -> AtariVectorEnv:
    """ALE's vector environment under a protocol; with `colour`, the screen instead of what an agent sees."""
    from ale_py.vector_env import AtariVectorEnv

    height, width = SCREEN if colour else (protocol.size, protocol.size)
    return AtariVectorEnv(
        game,
        num_envs,
        max_num_frames_per_episode=protocol.frame_limit,
        repeat_action_probability=protocol.sticky,
        full_action_space=protocol.full_actions,
        autoreset_mode=mode,
        img_height=height,
        img_width=width,
        grayscale=not colour,
        stack_num=1 if colour else protocol.stack,
        frameskip=protocol.frame_skip,
        maxpool=protocol.max_pool,
        noop_max=protocol.noops,
        reward_clipping=False,
        use_fire_reset=protocol.fire,
    )


def atari_spec(spec: EnvSpec, settings: dict[str, Any]) -> EnvSpec:
    """The spec of a registered game as an agent sees it: gray, small, stacked."""
    game = {"game": spec.kwargs["game"], "protocol": protocol_from(settings)}
    return EnvSpec(spec.id, entry_point=GAME, kwargs=game)
