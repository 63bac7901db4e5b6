"""Sequences of labels against data: n-grams, and a compressor as a reference for bits per label."""

import lzma

import torch
from torch import Tensor

from blackout.evaluation.metric import Metric, SampleSet

_LONG = 8  # labels of the n-grams whose novelty is measured
_SHORT = (1, 2, 3)  # of those whose frequencies are compared
_FACTOR = 6364136223846793005  # of the codes of n-grams, modulo 2^64


def ngram_codes(x: Tensor, n: int, pad: int | None = None) -> Tensor:
    """A number for each n-gram without padding of the rows of x, (rows, length); equal n-grams have equal numbers."""
    windows = x.cpu().long().unfold(1, n, 1)
    codes = torch.zeros(windows.shape[:2], dtype=torch.int64)
    for k in range(n):
        codes = codes * _FACTOR + windows[..., k] + 1
    return codes.flatten() if pad is None else codes[(windows != pad).all(-1)]


def ngram_distance(x: Tensor, y: Tensor, n: int, pad: int | None = None) -> float:
    """The total-variation distance of the frequencies of n-grams in x and in y, from 0 to 1."""
    both = [ngram_codes(v, n, pad) for v in (x, y)]
    _, index = torch.unique(torch.cat(both), return_inverse=True)
    shares = [
        torch.bincount(part, minlength=int(index.max()) + 1).double() / len(part)
        for part in index.split([len(b) for b in both])
    ]
    return float((shares[0] - shares[1]).abs().sum() / 2)


def ngram_novelty(x: Tensor, y: Tensor, n: int, pad: int | None = None) -> float:
    """The share of the n-grams of x that y does not have."""
    return float((~torch.isin(ngram_codes(x, n, pad), torch.unique(ngram_codes(y, n, pad)))).double().mean())


class NgramDistance(Metric):
    """Frequencies and novelty of the n-grams of sequences."""

    title = "N-grams"
    better = "distances: low; novelty: that of held-out data"
    description = (
        "Total-variation distance of the frequencies of single labels, pairs and triples from those of the data, and "
        "the share of sequences of eight labels that the data do not have. Held-out data show what is reachable."
    )
    values = {f"ngram_distance_{n}": f"{n}-gram distance" for n in _SHORT} | {f"ngram_novelty_{_LONG}": "novel 8-grams"}
    needs_features = False
    needs_sequences = True

    def __call__(self, samples: SampleSet, data: SampleSet) -> dict[str, float]:
        both, pad = (samples.x, data.x), samples.pad_state
        length = min(int((x != (-1 if pad is None else pad)).sum(-1).max()) for x in both)  # of the longest sequence
        distances = {f"ngram_distance_{n}": ngram_distance(*both, min(n, length), pad) for n in _SHORT}
        return distances | {f"ngram_novelty_{_LONG}": ngram_novelty(*both, min(_LONG, length), pad)}


def xz_bits(test: bytes, train: bytes = b"", labels: int = 0) -> float:
    """Bits per label that `xz -9e` needs for test data after the training data; `labels`: default, one a byte."""

    def size(data: bytes) -> int:
        return len(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))

    return 8 * (size(train + test) - (size(train) if train else 0)) / (labels or len(test))
