"""Tutorial 1: your first return law.

Train an agent on a small frozen lake, ask it for the law of the return, and lay that law over the exact one. Under a
minute; the cells (`# %%`) run one by one in an editor, or all at once with `python examples/first_law.py`.
"""

# %% Train: 30,000 steps with the default method on nine squares of slippery ice, one of them a hole
import os
from pathlib import Path

import gymnasium
import matplotlib
import numpy as np

import nfdrl
from nfdrl.style import STYLE, draw_law, draw_truth, figure, legend_below

STEPS = int(os.environ.get("NFDRL_STEPS", "30000"))
lake = gymnasium.make("FrozenLake-v1", desc=["SFF", "FHF", "FFG"])
often = {"epsilon_end": 0.5}  # random actions to the end: the law of an action is learned only where it is tried
agent = nfdrl.Agent(env=lake, seed=0, config=often).learn(STEPS)
print(agent)

# %% A law per action: what the return may be after each of the four moves, from the square above the goal
SQUARE = 5
law = agent.returns(SQUARE)
print(law)
moves = ("left", "down", "right", "up")
for move, mean, low, tail in zip(moves, law.mean(), law.quantile(0.25), law.cvar(0.1), strict=True):
    print(f"{move:6} mean {mean:6.3f}   lower quartile {low:6.3f}   worst tenth {tail:6.3f}")
action, _ = agent.predict(SQUARE)
print("the agent moves", moves[int(action)])

# %% The exact law of the same policy: FrozenLake is a table, so it can be computed
mdp = nfdrl.FiniteMDP.from_env(lake)
policy, _ = agent.predict(np.arange(mdp.n_states))
truth = nfdrl.exact_returns(mdp, policy, discount=agent.config.discount)
for a, move in enumerate(moves):
    print(f"{move:6} exact mean {truth[SQUARE, a].mean():6.3f}   learned {law.mean()[a]:6.3f}")

# %% A picture: the learned CDF over the exact one; the jump at 0 is the chance of falling through the ice
with matplotlib.rc_context(STYLE):
    made, axes = figure(9, 2.8, cols=4, sharey=True)
    for a, (ax, move) in enumerate(zip(axes[0], moves, strict=True)):
        draw_truth(ax, truth[SQUARE, a], "cdf", label="exact")
        draw_law(ax, law[a], agent.method, "cdf", -0.1, 1.1, label="learned")
        ax.set(title=move, xlabel="return", xlim=(-0.1, 1.1), ylim=(-0.02, 1.02))
    axes[0, 0].set_ylabel("probability of at most this")
    legend_below(made, axes)
    path = Path("out/tutorials/first_law.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    made.savefig(path, dpi=150)
print(path)

# %% Keep it
agent.save("out/tutorials/lake")
again = nfdrl.Agent.load("out/tutorials/lake")
assert bool((again.returns(SQUARE).mean() == law.mean()).all())
