"""Tutorial 2: acting by risk on the cliff.

A short path along an edge is better on average; once in eleven walks it ends in a fall. A long path around it never
does. One agent learns the law of both and then acts by its mean, or by its worst tenth. About half a minute.
"""

# %% Train once. The only choice is at the start: 0 takes the short path, 1 the long one
import os
from pathlib import Path

import matplotlib

import nfdrl
from nfdrl.envs.cliff import risky_cliff
from nfdrl.style import STYLE, draw_law, draw_truth, figure, legend_below

STEPS = int(os.environ.get("NFDRL_STEPS", "20000"))
START, PATHS = 0, ("short", "long")
agent = nfdrl.Agent(env="nfdrl/RiskyCliff-v0", seed=0, config={"discount": 1.0}).learn(STEPS)
law = agent.returns(START)

# %% Two numbers per path, and what they would have you do
for word in ("mean", "cvar:0.1"):
    short, long = nfdrl.parse_risk(word)(law).tolist()
    print(f"{word:9} short {short:6.3f}   long {long:6.3f}   → {'short' if short > long else 'long'}")

# %% Act by each of them: `agent.risk` counts at once
results = {}
for word in ("mean", "cvar:0.1"):
    agent.risk = word
    path = PATHS[int(agent.predict(START)[0])]
    results[word] = agent.evaluate(500, progress=False)
    falls, mean = int((results[word].returns < -1).sum()), results[word].mean
    print(f"by {word:9} the {path} path: mean return {mean:6.3f}, {falls} falls in 500 walks")

# %% A picture: the learned laws over the exact ones, and the walks that came of them
mdp = risky_cliff()
truth = nfdrl.exact_returns(mdp, mdp.optimal_policy())
with matplotlib.rc_context(STYLE):
    made, axes = figure(9, 3.2, cols=3)
    for a, name in enumerate(PATHS):
        ax = axes[0, a]
        draw_truth(ax, truth[START, a], "cdf", label="exact")
        draw_law(ax, law[a], agent.method, "cdf", -1.6, 0, label="learned")
        ax.axvline(float(law[a].mean()), color="black", linewidth=1, label="learned mean")
        ax.axvline(float(law[a].cvar(0.1)), color="black", linewidth=1, linestyle=":", label="learned CVaR(0.1)")
        ax.set(title=f"the {name} path", xlabel="return", xlim=(-1.6, 0), ylim=(-0.02, 1.02))
    axes[0, 0].set_ylabel("probability of at most this")
    bars = axes[0, 2]
    shares = [100 * float((found.returns < -1).mean()) for found in results.values()]
    bars.bar_label(bars.bar(("by the mean", "by CVaR(0.1)"), shares, width=0.5, color="#888888"), fmt="%.1f")
    bars.set(title="falls in 100 walks", ylim=(0, 12))
    legend_below(made, axes)
    picture = Path("out/tutorials/cliff.png")
    picture.parent.mkdir(parents=True, exist_ok=True)
    made.savefig(picture, dpi=150)
print(picture)
