"""An agent that is dropped gives its memory back at once, without waiting for the cycle collector."""

from __future__ import annotations

import subprocess
import sys

import pytest

DROPPED = """
import gc, sys, tempfile, weakref
from nfdrl.agent import Agent
from nfdrl.runs.session import Run
from nfdrl.training.config import TrainConfig

gc.collect()
gc.disable()


def parts_of(agent):
    trainer = agent.trainer
    made = getattr(trainer.stream, "env", None) or trainer.stream.envs[0]
    return [weakref.ref(part) for part in (agent, trainer, trainer.replay, trainer.stream, made, agent.network)]


def used(method, env, frame_replay="auto"):
    config = TrainConfig(learning_starts=30, batch_size=4, train_every=8, buffer_size=2000, num_envs=2,
                         report_every=50, frame_replay=frame_replay)
    agent = Agent(method, env, config=config)
    agent.learn(80, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        agent.save(folder, replay=True)
        loaded = Agent.load(folder)
        loaded.learn(10, total_steps=90, progress=False)
    loaded.evaluate(1, max_steps=3, progress=False)
    return parts_of(agent) + parts_of(loaded)


def run(method, env):
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(learning_starts=30, batch_size=4, train_every=8, buffer_size=2000)
        return parts_of(Run(folder + "/run", method, env, config=config, checkpoint_every=40).train(80).agent)


for words in sys.argv[1:]:
    make, *rest = words.split(",")
    print(words, [ref() is None for ref in {"used": used, "run": run}[make](*rest)])
"""


@pytest.mark.parametrize(
    "words",
    [
        ("used,nfdrl,ALE/Pong-v5", "used,dqn,ALE/Pong-v5,compressed", "run,nfdrl-s,ALE/Pong-v5"),
        ("used,fqf,FrozenLake-v1", "used,iqn,CartPole-v1", "run,nfdrl,CartPole-v1"),
    ],
    ids=["Pong", "others"],
)
def test_a_dropped_agent_is_gone_at_once_the_first_one_too(words: tuple[str, ...]) -> None:
    line = [sys.executable, "-W", "ignore", "-c", DROPPED, *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, check=True)
    said = done.stdout.splitlines()
    assert [each.partition(" ")[0] for each in said] == list(words)
    assert "False" not in done.stdout, done.stdout
