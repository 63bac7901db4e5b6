"""Log probabilities of the binomial distribution by Loader's expansion: no cancellation for counts of 1e6 and more."""

import math

import torch
from torch import Tensor

_TINY = 1e-290  # a probability by which counts can be divided without overflow
_STIRLING_ERRORS = torch.tensor(
    [math.lgamma(m + 1) - (m + 0.5) * math.log(m) + m - 0.5 * math.log(2 * math.pi) for m in (1, *range(1, 16))],
    dtype=torch.float64,
)


def binomial_log_pmf(k: Tensor, n: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """log P(Binomial(n, p) = k) in float64, given both p and q = 1 - p; -inf outside {0, ..., n}.

    C. Loader, "Fast and accurate computation of binomial probabilities" (2000). What depends on p and q alone is
    computed in their own shape, before they are broadcast.
    """
    k, n = k.double(), n.double()
    log_p = torch.where(q < 0.5, torch.log1p(-q), torch.log(p))
    log_q = torch.where(p < 0.5, torch.log1p(-p), torch.log(q))
    large_p, large_q = p.clamp(min=_TINY), q.clamp(min=_TINY)
    excess = k * q - (n - k) * p  # k - np without subtracting two large numbers
    interior = (
        _stirling_error(n)
        - _stirling_error(k)
        - _stirling_error(n - k)
        - _deviance(excess, n * large_p)
        - _deviance(-excess, n * large_q)
        - k * torch.log(large_p / p)
        - (n - k) * torch.log(large_q / q)
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
    return mean * ((1 + e) * torch.log1p(e) - e)


def _stirling_error(n: Tensor) -> Tensor:
    """log n! minus Stirling's approximation of it, for integers n; at zero it is that of one."""
    m = n.clamp(min=1)
    s = 1 / (m * m)
    series = (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s / 1188)))) / m
    few = len(_STIRLING_ERRORS)
    return torch.where(m < few, _STIRLING_ERRORS.to(m.device)[m.clamp(max=few - 1).long()], series)
