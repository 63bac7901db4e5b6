"""Log probabilities of the binomial distribution by Loader's expansion: no cancellation for counts of 1e6 and more."""

import math

import torch
from torch import Tensor


def binomial_log_pmf(k: Tensor, n: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """log P(Binomial(n, p) = k) in float64, given both p and q = 1 - p; -inf outside {0, ..., n}.

    C. Loader, "Fast and accurate computation of binomial probabilities" (2000).
    """
    k, n = k.double(), n.double()
    k, n, p, q = torch.broadcast_tensors(k, n, p, q)
    log_p = torch.where(q < 0.5, torch.log1p(-q), torch.log(p))
    log_q = torch.where(p < 0.5, torch.log1p(-p), torch.log(q))
    excess = k * q - (n - k) * p  # k - np without subtracting two large numbers
    interior = (
        _stirling_error(n)
        - _stirling_error(k)
        - _stirling_error(n - k)
        - _deviance(excess, n * p)
        - _deviance(-excess, n * q)
        + 0.5 * torch.log(n / (2 * math.pi * k * (n - k)))
    )
    value = torch.where(k == 0, _times_log(n, log_q), torch.where(k == n, _times_log(n, log_p), interior))
    certain = (p == 0) | (q == 0)
    value = torch.where(certain, torch.where(k == n * p, 0.0, -math.inf), value)
    return torch.where((k >= 0) & (k <= n), value, -math.inf)


def _times_log(n: Tensor, log: Tensor) -> Tensor:
    return torch.where(n == 0, 0.0, n * log)


def _deviance(excess: Tensor, mean: Tensor) -> Tensor:
    """x log(x / mean) + mean - x, for x = mean + excess."""
    e = excess / mean
    far = excess * (torch.log(excess) - torch.log(mean) - 1)  # the mean is so small that the ratio overflows
    return torch.where(torch.isposinf(e), far, mean * ((1 + e) * torch.log1p(e) - e))


def _stirling_error(n: Tensor) -> Tensor:
    """log n! minus Stirling's approximation of it."""
    m = n.clamp(min=1)
    direct = torch.lgamma(m + 1) - (m + 0.5) * torch.log(m) + m - 0.5 * math.log(2 * math.pi)
    s = 1 / (m * m)
    series = (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s / 1188)))) / m
    return torch.where(m < 16, direct, series)
