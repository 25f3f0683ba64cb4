"""Videos are read back from disk: as many frames as steps, each of the right size, none like the one before."""

import subprocess
from functools import partial
from importlib import util
from itertools import pairwise

import gymnasium
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from PIL import Image

from nfdrl.agent import Agent
from nfdrl.cli import main
from nfdrl.envs.solo import Solo
from nfdrl.errors import NfdrlError
from nfdrl.evaluation import video
from nfdrl.evaluation.episode import discounted, play, rendering_env
from nfdrl.evaluation.scene import BOTTOM, TOP, Scene, densities, fitted
from nfdrl.evaluation.video import record
from nfdrl.laws import METHODS
from nfdrl.laws.dirac import DiracLaw
from nfdrl.laws.mixture import MixtureLaw
from nfdrl.torsos import TorsoSizes
from nfdrl.training.config import TrainConfig

MIDDLE = 360 * (1 - (BOTTOM + 0.03 + TOP) / 2)  # of the panel with the laws
SMALL = TrainConfig(learning_starts=64, batch_size=16, torso=TorsoSizes(mlp=(16, 16)))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agent") / "cartpole"
    Agent("nfdrl-s", "CartPole-v1", seed=1, config=SMALL).learn(200, progress=False).save(folder)
    return folder


def read_gif(path):
    with Image.open(path) as image:
        frames = []
        for k in range(image.n_frames):
            image.seek(k)
            frames.append(np.asarray(image.convert("RGB")))
    return np.stack(frames)


def read_mp4(path):
    from imageio_ffmpeg import get_ffmpeg_exe

    words = [get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(words, capture_output=True, check=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, 720, 1280, 3)


@pytest.mark.parametrize(("name", "read", "size"), [("a.gif", read_gif, (360, 640)), ("a.mp4", read_mp4, (720, 1280))])
def test_the_file_has_one_frame_per_step(saved, tmp_path, capsys, name, read, size):
    path = tmp_path / "videos" / name
    words = ["evaluate", str(saved), "--episodes", "1", "--video", str(path), "--video-steps", "30", "--seed", "7"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    frames = read(path)
    length = int(Agent.load(saved).evaluate(1, seed=7).lengths[0])
    assert frames.shape == (min(length, 30), *size, 3)
    assert f"video of {len(frames)} steps" in shown
    assert all((a != b).any() for a, b in pairwise(frames))
    left, right = frames[:, :, : size[1] // 2], frames[:, :, size[1] // 2 :]
    assert (frames[:, 0, 0] >= 254).all()  # the page is white
    assert left.std(0).max() > 10  # the pole moves
    assert right.std(0).max() > 10  # and so do the laws
    assert [file.name for file in path.parent.iterdir()] == [name]


@pytest.mark.parametrize("method", METHODS)
def test_the_laws_of_every_method_can_be_drawn(method, tmp_path):
    agent = Agent(method, "FrozenLake-v1", config=SMALL)
    env = rendering_env(agent.source)
    made = record(agent, env, tmp_path / "lake.gif", seed=3, max_steps=3, discount=0.9)
    env.close()
    assert len(read_gif(tmp_path / "lake.gif")) == made.frames > 0


def test_the_chosen_action_has_the_colour_and_the_frame_its_picture(saved):
    agent = Agent.load(saved)
    env = rendering_env(agent.source)
    moments, end = play(agent, Solo(env), 0, 4, partial(fitted, dpi=100))
    env.close()
    assert end == "cut off"
    scene = Scene(moments, ("title", ""), ("left", "right"), "#0072B2", 100, None)
    for k, moment in enumerate(moments):
        pixels = scene.frame(k)
        (x, y), (height, width) = scene.corner, moment.picture.shape[:2]
        assert (pixels[y : y + height, x : x + width] == moment.picture).all()
        blue = (np.abs(pixels.astype(int) - (0, 114, 178)).sum(-1) < 100).nonzero()[0]
        assert (blue.mean() < MIDDLE) == (moment.action == 0)  # the first action stands on top


def test_the_bins_hold_the_mass_of_any_law():
    edges = np.linspace(-3, 3, 201)
    gaussian = MixtureLaw(
        *(torch.tensor([row] * 2, dtype=torch.float64) for row in ([0.5, 0.5], [-1.0, 1.0], [0.3, 0.2]))
    )
    heights = densities(gaussian, edges)
    assert heights.shape == (2, 200)
    assert_allclose(heights.sum(-1) * np.diff(edges)[0], 1, atol=1e-9)
    spike = densities(DiracLaw(torch.tensor([0.5, 0.7], dtype=torch.float64)), edges)
    assert ((spike > 0).sum(-1) == 1).all()
    assert_allclose(spike.max(-1) * np.diff(edges)[0], 1)


def test_the_return_that_followed_starts_over_after_an_end():
    rewards, never = np.array([1.0, 2.0, 4.0]), np.zeros(3, bool)
    assert_allclose(discounted(rewards, never, 0.5), [1 + 0.5 * 2 + 0.25 * 4, 2 + 0.5 * 4, 4])
    assert_allclose(discounted(rewards, np.array([True, False, False]), 0.5), [1, 4, 4])


def test_a_failed_video_leaves_no_file(saved, tmp_path, monkeypatch):
    agent = Agent.load(saved)
    env = rendering_env(agent.source)

    def full(self):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Scene, "frames", full)
    with pytest.raises(NfdrlError, match="No space left"):
        record(agent, env, tmp_path / "a.gif", max_steps=2)
    env.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--video", "a.avi"], ".mp4 or a .gif"),
        (["--video", "there.gif"], "exists"),
        (["--video", "a.gif", "--video-steps", "0"], "video_steps must be at least 1, got 0"),
        (["--video", "a.gif", "--fps", "0"], "fps must lie in [0.01, 1000], got 0.0"),
    ],
)
def test_bad_input_is_one_line(saved, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.gif").write_text("mine")
    assert main(["evaluate", str(saved), "--episodes", "1", *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
    assert [file.name for file in tmp_path.iterdir()] == ["there.gif"]


def test_an_environment_without_pictures_is_refused(tmp_path):
    with pytest.raises(NfdrlError, match=r"'nfdrl/MDP2-v0' draws no pictures"):
        rendering_env(Agent("dqn", "nfdrl/MDP2-v0", config=SMALL).source)


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(video, "find_spec", lambda name: None if name == "imageio_ffmpeg" else util.find_spec(name))
    with pytest.raises(NfdrlError, match=r"nfdrl\[video\]"):
        video.check_video(tmp_path / "a.mp4")
    video.check_video(tmp_path / "a.gif")


def test_pictures_without_pygame_name_the_extra(monkeypatch):
    from gymnasium.envs.classic_control import CartPoleEnv

    def missing(self):
        raise gymnasium.error.DependencyNotInstalled("pygame is not installed")

    monkeypatch.setattr(CartPoleEnv, "render", missing)
    with pytest.raises(NfdrlError, match=r"nfdrl\[video\]"):
        rendering_env(Agent("dqn", "CartPole-v1", config=SMALL).source)
