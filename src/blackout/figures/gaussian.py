"""The Gaussian diffusion that Blackout is drawn beside: Ho, Jain and Abbeel's (2020), with the cosine schedule."""

import math

import torch
from torch import Tensor

from blackout import validate
from blackout.random import normal, pick, uniform
from blackout.streams import Streams

_OFFSET = 0.008  # of the cosine schedule
_LARGEST_BETA = 0.999


class GaussianDiffusion:
    """Variance-preserving, in discrete time k = 0, ..., T, on states 0, ..., M that are mapped to [-1, 1].

    z_k given z_0 is N(√ᾱ_k z_0, 1 - ᾱ_k), with the schedule of Nichol and Dhariwal (2021). All methods take and give
    numbers on the scale of the states, x = M (1 + z) / 2.
    """

    def __init__(self, largest: int, num_steps: int = 1000) -> None:
        self.max_state = validate.integer("largest", largest, 1)
        self.num_steps = validate.integer("num_steps", num_steps, 2)
        u = torch.arange(num_steps + 1, dtype=torch.float64) / num_steps
        f = torch.cos((u + _OFFSET) / (1 + _OFFSET) * math.pi / 2) ** 2
        beta = (1 - f[1:] / f[:-1]).clamp(max=_LARGEST_BETA)
        self.alpha_bar = torch.cat([torch.ones(1, dtype=torch.float64), torch.cumprod(1 - beta, 0)])

    def path(self, x0: Tensor, steps: list[int], source: Streams) -> Tensor:
        """One path of the forward process, seen at increasing `steps`, of shape (len(steps), batch, ...)."""
        noise = normal((len(x0), len(steps), *x0.shape[1:]), x0.device, source)
        z, before, seen = self.scale_rates(x0.double()), 0, []
        for i, k in enumerate(steps):
            kept = self.alpha_bar[k] / self.alpha_bar[before]
            z = torch.sqrt(kept) * z + torch.sqrt(1 - kept) * noise[:, i]
            before = k
            seen.append(self._states(z))
        return torch.stack(seen)

    def dequantize(self, x0: Tensor, source: Streams) -> Tensor:
        """A number drawn uniformly from the unit interval about each state."""
        return x0.double() + uniform(tuple(x0.shape), x0.device, source) - 0.5

    def density(self, law: Tensor, x: Tensor, k: int) -> Tensor:
        """The density of x_k at x, per unit of state, where X_0 has that law on 0, ..., M and is dequantized."""
        kept = self.alpha_bar[k]
        edges, z = self._edges(), self.scale_rates(x.double()).unsqueeze(-1)
        if k == 0:
            return ((z >= edges[:-1]) & (z < edges[1:])).double() @ law
        below: Tensor = torch.special.ndtr((z - torch.sqrt(kept) * edges) / torch.sqrt(1 - kept))
        return (below[..., :-1] - below[..., 1:]) @ law / torch.sqrt(kept)

    def reverse_paths(self, law: Tensor, num: int, source: Streams) -> Tensor:
        """Paths of the process that runs back, shape (T + 1, num): from noise, k = T, to dequantized data, k = 0.

        Each step draws X_0 from its exact posterior and then x_{k-1} from the bridge, which is the law of the reversed
        chain: what a perfect network would do.
        """
        noise = normal((num, self.num_steps + 1), torch.device("cpu"), source)
        choice = source.uniform((num, self.num_steps, 2))
        z = noise[:, self.num_steps]
        walk = [z]
        for k in range(self.num_steps, 0, -1):
            z0 = self._draw_start(law, z, k, choice[:, k - 1])
            now, before = self.alpha_bar[k], self.alpha_bar[k - 1]
            alpha = now / before
            mean = (torch.sqrt(before) * (1 - alpha) * z0 + torch.sqrt(alpha) * (1 - before) * z) / (1 - now)
            spread = torch.sqrt((1 - alpha) * (1 - before) / (1 - now))
            z = mean + spread * noise[:, k - 1]
            walk.append(z)
        return self._states(torch.stack(walk))

    def _draw_start(self, law: Tensor, z: Tensor, k: int, u: Tensor) -> Tensor:
        """z_0 given z_k: a unit interval first, then a place in it, both from the cut normal that Bayes' rule gives."""
        kept = self.alpha_bar[k]
        mean, spread = z / torch.sqrt(kept), torch.sqrt((1 - kept) / kept)
        edges = self._edges()
        below = torch.special.ndtr((edges - mean.unsqueeze(-1)) / spread)
        cell = pick((below[:, 1:] - below[:, :-1]) * law, u[:, 0])
        low, high = (below.gather(1, (cell + side).unsqueeze(-1)).squeeze(-1) for side in (0, 1))
        place: Tensor = mean + spread * torch.special.ndtri(torch.lerp(low, high, u[:, 1]))
        return place.clamp(edges[cell], edges[cell + 1])

    def _edges(self) -> Tensor:
        """The ends of the unit intervals about the states."""
        return self.scale_rates(torch.arange(self.max_state + 2, dtype=torch.float64) - 0.5)

    def scale_rates(self, x: Tensor) -> Tensor:
        return 2 * x / self.max_state - 1

    def _states(self, z: Tensor) -> Tensor:
        return self.max_state * (1 + z) / 2
