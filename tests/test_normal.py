"""Φ₂ against an independent quadrature, hand-worked points and its own derivatives."""

import math

import pytest
import torch
from hypothesis import given
from scipy.integrate import quad
from scipy.stats import norm

from flow_laws import floats
from nfdrl.numerics.normal import bivariate_normal_cdf, normal_cdf, normal_quantile

pytestmark = pytest.mark.usefixtures("double")


def phi2(h, k, rho):
    return bivariate_normal_cdf(*(torch.tensor(value, dtype=torch.float64) for value in (h, k, rho)))


@given(floats(-4, 4), floats(-4, 4), floats(-0.995, 0.995))
def test_phi2_equals_its_conditional_integral(h, k, rho):
    # P(X ≤ h, Y ≤ k) = ∫_{−∞}^h φ(t) Φ((k − ρt)/√(1−ρ²)) dt; cut where the step of Φ stands, so that quad sees it.
    def integrand(t):
        return norm.pdf(t) * norm.cdf((k - rho * t) / math.sqrt(1 - rho**2))

    step = min(max(k / rho, -9.0), h) if abs(rho) > 1e-3 and h > -9 else min(0.0, h)
    below, above = (quad(integrand, a, b, epsabs=1e-12, limit=200)[0] for a, b in ((-10, step), (step, h)))
    assert phi2(h, k, rho).item() == pytest.approx(below + above, abs=1e-9)


@pytest.mark.parametrize("rho", [-0.99995, -0.5, 0.0, 0.3, 0.99995])
def test_phi2_at_the_origin_is_a_quarter_plus_arcsine(rho):
    assert phi2(0.0, 0.0, rho).item() == pytest.approx(0.25 + math.asin(rho) / (2 * math.pi), abs=1e-14)


@pytest.mark.parametrize(("h", "k"), [(0.0, 1.3), (-2.0, 0.0), (7.5, -1.0), (0.4, 9.0)])
def test_phi2_without_correlation_is_a_product(h, k):
    assert phi2(h, k, 0.0).item() == pytest.approx(norm.cdf(h) * norm.cdf(k), abs=1e-15)


def test_phi2_is_the_marginal_when_the_other_limit_is_far():
    assert phi2(0.7, 12.0, -0.6).item() == pytest.approx(norm.cdf(0.7), abs=1e-14)


def test_phi2_has_the_gradients_of_plackett():
    arguments = (torch.tensor([0.3, -1.2, 2.0]), torch.tensor([-0.4, 0.9, 1.5]), torch.tensor([0.5, -0.9, 0.99]))
    for argument in arguments:
        argument.requires_grad_()
    assert torch.autograd.gradcheck(bivariate_normal_cdf, arguments)
    assert torch.autograd.gradgradcheck(bivariate_normal_cdf, arguments)


def test_normal_quantile_inverts_the_cdf_and_stays_finite_at_the_ends():
    z = torch.linspace(-5, 5, 101)
    torch.testing.assert_close(normal_quantile(normal_cdf(z)), z, atol=1e-8, rtol=0)
    for dtype in (torch.float32, torch.float64):
        assert torch.isfinite(normal_quantile(torch.tensor([0.0, 1.0], dtype=dtype))).all()
