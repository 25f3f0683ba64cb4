"""The same two actions judged by their mean, their worst tenth and more: exact laws, no learning."""

from nfdrl.envs.cliff import risky_cliff
from nfdrl.evaluation.truth import exact_returns
from nfdrl.risk import parse_risk

mdp = risky_cliff()
truth = exact_returns(mdp, mdp.optimal_policy())
start = 0
for words in ("mean", "cvar:0.1", "var:0.05", "entropic:5"):
    risk = parse_risk(words)
    values = {name: float(risk(truth[start, action])) for action, name in enumerate(mdp.action_names)}
    best = max(values, key=values.get)
    print(f"{words:12}", {name: round(value, 3) for name, value in values.items()}, "→", best)
