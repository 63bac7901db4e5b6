"""Losses against the formulas of the paper, with its errata."""

import math

import mpmath
import numpy
import pytest
import torch

import blackout as bo

LOSSES = [bo.InstantaneousLoss(), bo.FiniteTimeLoss(), bo.LikelihoodLoss()]
FORMULAS = [
    lambda s, t: (t - s) * mpmath.exp(-t),
    lambda s, t: mpmath.exp(-s) - mpmath.exp(-t),
    lambda s, t: (t - s) * mpmath.exp(-t) / (1 - mpmath.exp(-t)),
]
ALL = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)


@pytest.mark.parametrize(("loss", "formula"), list(zip(LOSSES, FORMULAS, strict=True)))
@pytest.mark.parametrize(("s", "t"), [(0.0, 3.06e-7), (2.98e-7, 3.06e-7), (0.68, 0.71), (14.9, 15.0), (0.0, 40.0)])
def test_weights_equal_their_formulas(loss, formula, s, t):
    with mpmath.workdps(50):
        exact = float(formula(mpmath.mpf(s), mpmath.mpf(t)))
    x = torch.tensor([4])
    # Without a difference the bracket is y alone.
    for dtype, tolerance in ((torch.float64, 1e-13), (torch.float32, 2e-7)):
        value = loss(torch.ones(1, dtype=dtype), x, x, s, t)
        assert value.dtype == dtype
        assert float(value) == pytest.approx(exact, rel=tolerance)


@ALL
def test_values_are_unreduced_with_one_time_for_each_sample(loss):
    source = torch.Generator().manual_seed(0)
    x0 = torch.randint(100, (3, 2, 5), generator=source, dtype=torch.uint8)
    y = torch.rand(3, 2, 5, dtype=torch.float64, generator=source) * 50
    s, t = torch.tensor([0.1, 0.2, 0.3]).double(), torch.tensor([0.2, 0.5, 2.0]).double()
    xt = bo.PureDeath(255).sample(x0, t, source)
    value = loss(y, x0, xt, s, t)
    assert value.shape == (3, 2, 5)
    weight = (loss.weight(t, t - s) / torch.expm1(t))[:, None, None]
    torch.testing.assert_close(value, weight * (y - (x0.double() - xt.double()) * y.log()))
    for k in range(3):
        torch.testing.assert_close(value[k], loss(y[k : k + 1], x0[k : k + 1], xt[k : k + 1], s[k], t[k])[0])


def posterior(xt, t):
    """P(X_0 | X_t = xt) for random weights on {0, ..., 12}."""
    x0 = torch.arange(13)
    weights = torch.from_numpy(numpy.random.default_rng(0).dirichlet(numpy.ones(13)))
    joint = weights * bo.PureDeath(12).log_prob(torch.full_like(x0, xt), x0, t).exp()
    return x0, joint / joint.sum()


@ALL
def test_expected_loss_is_least_at_the_posterior_mean(loss):
    xt, s, t = 3, 0.5, 0.8
    x0, probs = posterior(xt, t)
    possible = x0 >= xt
    x0, probs = x0[possible], probs[possible]
    best = float(probs @ (x0 - xt).double())

    def expected(y):
        return probs @ loss(y.expand(len(x0)), x0, torch.full_like(x0, xt), s, t)

    y = torch.tensor(best, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(expected(y), y)
    assert abs(float(slope)) < 1e-13
    y = y.detach()
    for factor in (0.5, 0.99, 1.01, 2.0):
        assert float(expected(factor * y)) > float(expected(y))


@ALL
def test_loss_is_zero_where_nothing_is_lost_or_predicted(loss):
    x, y = torch.tensor([4, 0]), torch.zeros(2, requires_grad=True)
    value = loss(y, x, x, 0.1, 0.2)
    assert value.tolist() == [0.0, 0.0]
    value.sum().backward()
    weight = loss.weight(torch.tensor(0.2), torch.tensor(0.1)) / math.expm1(0.2)
    torch.testing.assert_close(y.grad, torch.full((2,), float(weight)))


@ALL
@pytest.mark.parametrize("t", [1e-5, 0.7, 12.0])
def test_losses_are_weights_on_the_divergence_of_the_posterior(loss, t):
    """w(t, t - s) times `Posterior.divergence`, up to the terms that do not depend on y."""
    process, s = bo.PureDeath(40), 0.9 * t
    x0, xt = torch.tensor([[40, 7, 7]]), torch.tensor([[10, 7, 0]])
    times, lost = torch.tensor([t], dtype=torch.float64), (x0 - xt).double()
    weight = loss.weight(times, times - s)
    constant = weight / torch.expm1(times) * (torch.xlogy(lost, lost) - lost)
    for value in (0.2, 3.0, 25.0):
        y = torch.full((1, 3), value, dtype=torch.float64)
        divergence = bo.MeanPosterior(process, xt, times, y).divergence(x0)
        torch.testing.assert_close(weight * divergence - constant, loss(y, x0, xt, s, t), rtol=1e-9, atol=1e-12)


@ALL
@pytest.mark.parametrize("t", [3.06e-7, 1.0, 15.0])
def test_gradients_are_finite(loss, t):
    y = torch.tensor([1e-6, 0.3, 200.0], requires_grad=True)
    loss(y, torch.tensor([255, 1, 200]), torch.tensor([0, 1, 3]), t / 2, t).sum().backward()
    assert torch.isfinite(y.grad).all()


PROCESS = bo.BirthDeath(10, birth=0.5, immigration=1.0)
X0, XT = torch.tensor([[2, 5], [9, 0], [3, 3]]), torch.tensor([[3, 5], [4, 1], [0, 9]])
KAPPA = torch.rand(3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.1
S, T = torch.tensor([0.1, 0.2, 0.3]).double(), torch.tensor([0.2, 0.5, 2.0]).double()


def test_rate_loss_sums_over_the_channels():
    rates = PROCESS.reverse_rates(X0, XT, T)
    expected = sum(KAPPA[..., r] - rates[..., r] * KAPPA[..., r].log() for r in range(2)) * (T - S)[:, None]
    torch.testing.assert_close(bo.RateLoss(PROCESS)(KAPPA, X0, XT, S, T), expected)


def test_loss_of_one_channel_averages_to_that_of_all():
    loss = bo.RateLoss(PROCESS)
    ones = [loss(KAPPA[..., r], X0, XT, S, T, channel=r) for r in range(2)]
    torch.testing.assert_close(sum(ones) / 2, loss(KAPPA, X0, XT, S, T))
    channel = torch.tensor([1, 0, 1])
    drawn = loss(torch.stack([KAPPA[k, :, c] for k, c in enumerate(channel)]), X0, XT, S, T, channel=channel)
    torch.testing.assert_close(drawn, torch.stack([ones[c][k] for k, c in enumerate(channel)]))


@pytest.mark.parametrize("t", [1e-5, 0.7, 12.0])
def test_rate_loss_of_pure_death_is_the_likelihood_loss_up_to_a_constant(t):
    process, s = bo.PureDeath(40), 0.9 * t
    x0, xt = torch.tensor([40, 7, 7]), torch.tensor([10, 7, 0])
    odds = 1 / math.expm1(t)
    ys = [torch.full((3,), v, dtype=torch.float64) for v in (0.2, 3.0, 25.0)]
    gaps = [
        bo.RateLoss(process)((y * odds).unsqueeze(-1), x0, xt, s, t) - bo.LikelihoodLoss()(y, x0, xt, s, t) for y in ys
    ]
    constant = -(t - s) * odds * (x0 - xt) * math.log(odds)
    for gap in gaps:
        torch.testing.assert_close(gap, constant.double(), rtol=1e-5, atol=1e-6)


def test_rate_loss_follows_the_schedule():
    # λ at time t is β(t) times the homogeneous rate on the clock B(t).
    process = bo.BirthDeath(10, immigration=1.0, schedule=bo.Schedule.linear(0.0, 2.0))
    plain = bo.BirthDeath(10, immigration=1.0)
    rates = 2 * T[:, None, None] * plain.reverse_rates(X0, XT, T**2)
    expected = ((KAPPA - rates * KAPPA.log()).sum(-1)) * (T - S)[:, None]
    torch.testing.assert_close(bo.RateLoss(process)(KAPPA, X0, XT, S, T), expected)


def test_impossible_channels_may_be_predicted_as_zero():
    x = torch.tensor([[0]])
    rates = PROCESS.reverse_rates(x, x, 0.5)
    assert rates[0, 0].tolist()[1] == 0.0
    kappa = rates.clone().requires_grad_()
    value = bo.RateLoss(PROCESS)(kappa, x, x, 0.4, 0.5)
    value.sum().backward()
    assert torch.isfinite(value).all()
    assert torch.isfinite(kappa.grad).all()


@ALL
def test_invalid_arguments_of_losses_are_rejected(loss):
    x, y = torch.tensor([4, 5]), torch.ones(2)
    with pytest.raises(ValueError, match="y has shape"):
        loss(y[:1], x, x, 0.1, 0.2)
    with pytest.raises(ValueError, match="xt has shape"):
        loss(y, x, x[:1], 0.1, 0.2)
    with pytest.raises(ValueError, match="s must be less than t"):
        loss(y, x, x, 0.2, 0.2)
    with pytest.raises(ValueError, match="integers"):
        loss(y, x.float(), x, 0.1, 0.2)
    with pytest.raises(ValueError, match=r"y must be a floating-point tensor, got torch\.int64"):
        loss(torch.tensor([3, 3]), x + 5, x, 0.1, 0.2)
    with pytest.raises(ValueError, match="xt must not exceed x0 under pure death, got xt=5"):
        loss(y, x - 1, torch.tensor([3, 5]), 0.1, 0.2)


def test_invalid_arguments_of_the_rate_loss_are_rejected():
    loss = bo.RateLoss(PROCESS)
    with pytest.raises(ValueError, match="kappa must have shape"):
        loss(KAPPA[..., 0], X0, XT, S, T)
    with pytest.raises(ValueError, match="kappa must have shape"):
        loss(KAPPA, X0, XT, S, T, channel=0)
    with pytest.raises(ValueError, match="kappa must"):
        loss(KAPPA.long(), X0, XT, S, T)
    for channel in (2, -1, 0.5, torch.tensor([0, 1, 2])):
        with pytest.raises(ValueError, match="channel must hold integers from 0 to 1"):
            loss(KAPPA[..., 0], X0, XT, S, T, channel=channel)
