"""Substitution models of nucleotides: generators from rates and base frequencies. Not in the paper."""

from collections.abc import Sequence

import numpy

from blackout import validate
from blackout.process.finite_state import FiniteState

NUCLEOTIDES = "ACGT"
"""The order of the states, and of the labels of sequences of DNA."""
_PAIRS = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))  # AC, AG, AT, CG, CT, GT
_TRANSITIONS = (1, 4)  # of these, the changes within purines and within pyrimidines


def substitution_model(
    rates: Sequence[float] | float = 1.0, frequencies: Sequence[float] = (0.25, 0.25, 0.25, 0.25)
) -> FiniteState:
    """A time-reversible substitution model of the nucleotides A, C, G, T, with one substitution per unit of time.

    The rate i -> j is proportional to rates[ij] frequencies[j] (Tavaré, 1986). The process ends in the frequencies.

    Parameters
    ----------
    rates
        GTR: six numbers, the exchangeabilities of AC, AG, AT, CG, CT and GT. HKY85: one number, κ, by which transitions
        (A to G and C to T, and back) are more likely than transversions; with equal frequencies that is K80, and with
        κ = 1 JC69.
    frequencies
        Those of A, C, G and T, positive; they are normalised.

    Examples
    --------
    >>> import blackout as bo, torch
    >>> process = bo.substitution_model(4.0, [0.3, 0.2, 0.2, 0.3])
    >>> process.terminal_probs
    tensor([0.3000, 0.2000, 0.2000, 0.3000], dtype=torch.float64)
    """
    if numpy.ndim(rates) == 0:
        kappa = validate.real("rates", rates, 0.0, strict=True)
        rates = [kappa if pair in _TRANSITIONS else 1.0 for pair in range(len(_PAIRS))]
    exchange, target = (
        numpy.array(validate.numbers(name, values, 0.0))
        for name, values in (("rates", rates), ("frequencies", frequencies))
    )
    for name, given, number in (("rates", exchange, 6), ("frequencies", target, 4)):
        if given.shape != (number,) or not bool((given > 0).all()):
            raise ValueError(f"{name} must be {number} positive numbers, got {given.tolist()}")
    target = target / target.sum()
    generator = numpy.zeros((4, 4))
    for rate, (i, j) in zip(exchange, _PAIRS, strict=True):
        generator[i, j], generator[j, i] = rate * target[j], rate * target[i]
    generator -= numpy.diag(generator.sum(1))
    return FiniteState(generator / -(target @ numpy.diag(generator)), ordered=False)
