"""One stream of random numbers for each sample, so that sample i of a seed is the same however the work is split.

The bits come from Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw (SC 2011). Nothing is
carried from draw to draw but a counter, so a stream costs no memory and gives the same bits on every device.
"""

import functools
import warnings
from types import ModuleType

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_BLOCK = 1 << 15  # counters handled at once on a CPU: their words stay in the cache
_GOLDEN = 0x9E3779B97F4A7C15


def mix(seed: int, number: int, purpose: int = 0) -> int:
    """A seed for each (seed, number, purpose), well spread (SplitMix64)."""
    z = (seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9 + purpose * 0x94D049BB133111EB + 1) & (2**64 - 1)
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return (z ^ (z >> 31)) >> 1


class Streams:
    """Streams number `start_index`, ..., `start_index + size - 1` of a seed: one for each sample of a batch."""

    def __init__(self, seed: int, size: int, start_index: int = 0, device: torch.device | str = "cpu") -> None:
        if not 0 <= start_index <= start_index + size <= _MASK:
            raise ValueError(
                f"start_index must keep the samples within {_MASK}, got start_index={start_index} for {size} samples"
            )
        mixed = (seed * _GOLDEN) & 0xFFFFFFFFFFFFFFFF
        self.key = (mixed & _MASK, mixed >> 32)
        self.device = torch.device(device)
        self.samples = torch.arange(start_index, start_index + size, device=self.device)
        self.draws = 0
        self._kernels = _kernels(self.device) if self.device.type == "cuda" else None
        self._key = torch.tensor(self.key, device=self.device)

    def next_draw(self) -> int:
        """The number of the draw about to be made; every draw of the batch has its own."""
        self.draws += 1
        return self.draws

    def uniform(self, shape: tuple[int, ...]) -> Tensor:
        """Float64 numbers in [0, 1), of shape (size, ...)."""
        if not shape:
            raise ValueError("shape must begin with the number of samples, got ()")
        size, components = shape[0], int(torch.Size(shape[1:]).numel())
        if size != len(self.samples):
            raise ValueError(f"shape must begin with {len(self.samples)}, one row for each stream, got {shape}")
        pairs = (components + 1) // 2
        if self._kernels is not None:
            both: Tensor = self._kernels.grid(self._key, self.samples, pairs, self.next_draw())
        else:
            sample = self.samples.repeat_interleave(pairs)
            block = torch.arange(pairs, device=self.device).repeat(size)
            both = torch.stack(self.pair(sample, block, self.next_draw(), 0), -1)
        return both.reshape(size, 2 * pairs)[:, :components].reshape(shape)

    def pair(self, sample: Tensor, component: Tensor, draw: int, attempt: int) -> tuple[Tensor, Tensor]:
        """Two uniform numbers for each (sample, component); rejection methods call again with the next `attempt`."""
        if self._kernels is not None:
            start_index, second = self._kernels.single(self._key, sample, component, draw, attempt).unbind(-1)
            return start_index, second
        step = _BLOCK if sample.device.type == "cpu" else max(1, sample.numel())
        words = [
            philox([c, s, torch.full_like(s, draw), torch.full_like(s, attempt)], self.key)
            for s, c in zip(sample.split(step), component.split(step), strict=True)
        ]
        if not words:
            empty = torch.empty(0, dtype=torch.float64, device=self.device)
            return empty, empty
        a, b, c, d = (torch.cat(parts) for parts in zip(*words, strict=True))
        return _double(a, b), _double(c, d)

    def locate(self, shape: torch.Size) -> tuple[Tensor, Tensor]:
        """For each entry of a batch of this shape, flattened: the number of its sample, and of its component."""
        components = int(shape[1:].numel())
        sample = self.samples.repeat_interleave(components)
        return sample, torch.arange(components, device=self.device).repeat(len(self.samples))


@functools.cache
def _kernels(device: torch.device) -> ModuleType | None:
    """Kernels for CUDA, if they give Philox's bits there; otherwise the same operations are done one by one.

    Some systems have no Triton, or one that does not fit their device or their compiler.
    """
    try:
        from blackout.random import streams_cuda

        counters, key = torch.arange(3, device=device), (7, 2**32 - 5)
        words = philox([counters, counters + 1, counters + 2, counters + 3], key)
        rows = [
            streams_cuda.single(
                torch.tensor(key, device=device), counters[k : k + 1] + 1, counters[k : k + 1], k + 2, k + 3
            )
            for k in range(3)
        ]
        right = torch.stack([_double(*words[:2]), _double(*words[2:])], -1)
        return streams_cuda if torch.equal(torch.cat(rows), right) else None
    except ImportError:
        return None
    except Exception as error:  # compilers fail in many ways, and none of them should keep a sample from being drawn
        warnings.warn(f"random bits come without a kernel, {type(error).__name__}: {error}", stacklevel=2)
        return None


def philox(counter: list[Tensor], key: tuple[int, int]) -> list[Tensor]:
    """Philox4x32 with ten rounds; words of 32 bits are carried in int64."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c2 = (product1 >> 32) & _MASK ^ c1 ^ k0, (product0 >> 32) & _MASK ^ c3 ^ k1
        c1, c3 = product1 & _MASK, product0 & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return [c0, c1, c2, c3]


def _double(high: Tensor, low: Tensor) -> Tensor:
    """53 random bits as a float64 in [0, 1)."""
    return ((high >> 5) * (1 << 26) + (low >> 6)).double() * 2.0**-53
