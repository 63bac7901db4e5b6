"""The Gaussian diffusion that figures compare with: Ho, Jain and Abbeel (2020), with the cosine schedule."""

import math

import torch
from torch import Tensor

from blackout import validate
from blackout.random import Streams, normal, pick, uniform

_OFFSET = 0.008  # of the cosine schedule
_MAX_BETA = 0.999


class GaussianDiffusion:
    """Variance-preserving diffusion in discrete time k = 0, ..., T on states 0, ..., M mapped to [-1, 1].

    z_k given z_0 is N(√ᾱ_k z_0, 1 - ᾱ_k), with the schedule of Nichol and Dhariwal (2021). All methods take and return
    numbers on the scale of the states, x = M (1 + z) / 2.

    Parameters
    ----------
    max_state
        M, the largest state.
    num_steps
        T, the number of steps.

    Examples
    --------
    >>> from blackout.figures import GaussianDiffusion
    >>> GaussianDiffusion(max_state=8, num_steps=10).alpha_bar.shape
    torch.Size([11])
    """

    def __init__(self, max_state: int, num_steps: int = 1000) -> None:
        self.max_state = validate.integer("max_state", max_state, 1)
        self.num_steps = validate.integer("num_steps", num_steps, 2)
        u = torch.arange(num_steps + 1, dtype=torch.float64) / num_steps
        f = torch.cos((u + _OFFSET) / (1 + _OFFSET) * math.pi / 2) ** 2
        beta = (1 - f[1:] / f[:-1]).clamp(max=_MAX_BETA)
        self.alpha_bar = torch.cat([torch.ones(1, dtype=torch.float64), torch.cumprod(1 - beta, 0)])

    def path(self, x0: Tensor, steps: list[int], source: Streams) -> Tensor:
        """One forward path from each x0 at increasing `steps`, shape (len(steps), batch, ...)."""
        noise = normal((len(x0), len(steps), *x0.shape[1:]), x0.device, source)
        z, before, path = self._encode(x0.double()), 0, []
        for i, k in enumerate(steps):
            kept = self.alpha_bar[k] / self.alpha_bar[before]
            z = torch.sqrt(kept) * z + torch.sqrt(1 - kept) * noise[:, i]
            before = k
            path.append(self._decode(z))
        return torch.stack(path)

    def dequantize(self, x0: Tensor, source: Streams) -> Tensor:
        """x0 plus uniform noise on [-1/2, 1/2)."""
        return x0.double() + uniform(tuple(x0.shape), x0.device, source) - 0.5

    def density(self, probs: Tensor, x: Tensor, k: int) -> Tensor:
        """The density of x_k at x per unit of state, for dequantized X_0 with probabilities `probs`, shape (M + 1,)."""
        kept = self.alpha_bar[k]
        edges, z = self._edges(), self._encode(x.double()).unsqueeze(-1)
        if k == 0:
            return ((z >= edges[:-1]) & (z < edges[1:])).double() @ probs
        below: Tensor = torch.special.ndtr((z - torch.sqrt(kept) * edges) / torch.sqrt(1 - kept))
        return (below[..., :-1] - below[..., 1:]) @ probs / torch.sqrt(kept)

    def reverse_paths(self, probs: Tensor, num: int, source: Streams) -> Tensor:
        """Paths of the reverse process from noise, k = T, to dequantized data, k = 0; shape (T + 1, num).

        Each step samples X_0 from its exact posterior and then x_{k-1} from the Gaussian bridge, which is the reversed
        chain itself: what a perfect network would do.
        """
        noise = normal((num, self.num_steps + 1), torch.device("cpu"), source)
        choice = source.uniform((num, self.num_steps, 2))
        path = [noise[:, self.num_steps]]
        for k in range(self.num_steps, 0, -1):
            z0 = self._sample_start(probs, path[-1], k, choice[:, k - 1])
            now, before = self.alpha_bar[k], self.alpha_bar[k - 1]
            alpha = now / before
            mean = (torch.sqrt(before) * (1 - alpha) * z0 + torch.sqrt(alpha) * (1 - before) * path[-1]) / (1 - now)
            path.append(mean + torch.sqrt((1 - alpha) * (1 - before) / (1 - now)) * noise[:, k - 1])
        return self._decode(torch.stack(path))

    def _sample_start(self, probs: Tensor, z: Tensor, k: int, u: Tensor) -> Tensor:
        """z_0 given z_k by Bayes' rule: the state first, then a truncated normal on its unit interval."""
        kept = self.alpha_bar[k]
        mean, spread = z / torch.sqrt(kept), torch.sqrt((1 - kept) / kept)
        edges = self._edges()
        below = torch.special.ndtr((edges - mean.unsqueeze(-1)) / spread)
        state = pick((below[:, 1:] - below[:, :-1]) * probs, u[:, 0])
        low, high = (below.gather(1, (state + side).unsqueeze(-1)).squeeze(-1) for side in (0, 1))
        place: Tensor = mean + spread * torch.special.ndtri(torch.lerp(low, high, u[:, 1]))
        return place.clamp(edges[state], edges[state + 1])

    def _edges(self) -> Tensor:
        """The ends of the unit intervals around the states."""
        return self._encode(torch.arange(self.max_state + 2, dtype=torch.float64) - 0.5)

    def _encode(self, x: Tensor) -> Tensor:
        return 2 * x / self.max_state - 1

    def _decode(self, z: Tensor) -> Tensor:
        return self.max_state * (1 + z) / 2
