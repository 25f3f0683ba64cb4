"""Our quantile-Huber loss against the released code of sb3-contrib, called for real."""

import torch
from sb3_contrib.common.utils import quantile_huber_loss
from torch.testing import assert_close

from nfdrl.losses.pinball import quantile_huber
from nfdrl.numerics.atoms import midpoints


def test_quantile_huber_matches_sb3_contrib():
    draws = torch.Generator().manual_seed(0)
    current, target = 2 * torch.randn(6, 5, generator=draws), 2 * torch.randn(6, 9, generator=draws)
    theirs = quantile_huber_loss(current, target, sum_over_quantiles=True)
    assert_close(quantile_huber(current, midpoints(5, current), target).mean(), theirs)
