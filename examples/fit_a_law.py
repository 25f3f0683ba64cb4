"""Fit a flow law to samples of a return: 13 numbers, the exact Cramér loss, and what can be read off the result."""

import torch

from nfdrl import FlowLaw
from nfdrl.losses.exact import cramer_exact
from nfdrl.numerics.base_points import base_points

generator = torch.Generator().manual_seed(0)
coin = torch.rand(2000, generator=generator) < 0.3
returns = torch.where(coin, -4.0, 2.0) + 0.5 * torch.randn(2000, generator=generator)  # a rare loss and a usual gain

raw = torch.zeros(1, 13, requires_grad=True)
optimizer = torch.optim.Adam([raw], lr=0.05)
z = base_points(512, like=raw)
for _ in range(1500):
    loss = cramer_exact(FlowLaw.from_raw(raw, initial_bound=8.0).at(z), returns.sort().values[None]).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

law = FlowLaw.from_raw(raw.detach(), initial_bound=8.0).select(0)
worst = returns.sort().values[:200]
print(f"mean      {law.mean():7.3f}   samples {returns.mean():7.3f}")
print(f"std       {law.std():7.3f}   samples {returns.std():7.3f}")
print(f"CVaR 0.1  {law.cvar(0.1):7.3f}   samples {worst.mean():7.3f}")
print(f"P(Z < 0)  {law.cdf(0.0):7.3f}   samples {(returns < 0).float().mean():7.3f}")
