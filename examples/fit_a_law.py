"""Fit a flow law to samples of a return: 13 numbers, the exact Cramér loss, and what the result tells."""

import torch

from nfdrl.laws.fitting import Fit, fit_returns
from nfdrl.laws.flow import FlowMethod

generator = torch.Generator().manual_seed(0)
coin = torch.rand(2000, generator=generator) < 0.3
returns = torch.where(coin, -4.0, 2.0) + 0.5 * torch.randn(2000, generator=generator)  # a rare loss and a usual gain

law = fit_returns(FlowMethod(initial_bound=8.0), returns.sort().values[None], Fit(updates=200, refining=1)).select(0)
worst = returns.sort().values[:200]
print(f"mean      {law.mean():7.3f}   samples {returns.mean():7.3f}")
print(f"std       {law.std():7.3f}   samples {returns.std():7.3f}")
print(f"CVaR 0.1  {law.cvar(0.1):7.3f}   samples {worst.mean():7.3f}")
print(f"P(Z < 0)  {law.cdf(0.0):7.3f}   samples {(returns < 0).float().mean():7.3f}")
