"""An autoregressive transformer: the reference for bits per label of sequences. Not in the paper."""

import math
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from blackout.bits import BitsPerDim
from blackout.network.transformer import PRESETS, Transformer, TransformerConfig, to_digits

_WARMUP = 100


class AutoregressiveModel:
    """log p(x) = Σ_i log p(x_i | x_1, ..., x_{i-1}), with the transformer that the diffusion models have.

    Parameters
    ----------
    num_labels, length
        Of a sequence; labels from `num_labels` on, padding, are part of neither loss nor bits.
    preset, sizes
        Those of the network: width, blocks, dropout.

    Examples
    --------
    >>> x = torch.tensor([[0, 1, 0, 1]] * 8)
    >>> model = AutoregressiveModel(2, 4, width=16, blocks=1).fit(x, steps=40, batch_size=8, learning_rate=1e-2)
    >>> bool(model.bits_per_dim(x) < 0.5)
    True
    """

    def __init__(self, num_labels: int, length: int, preset: str = "tiny", seed: int = 0, **sizes: float) -> None:
        self.num_labels = num_labels
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            chosen = {**PRESETS[preset], **sizes}
            settings = TransformerConfig(
                length=length, labels=num_labels + 2, outputs=num_labels, causal=True, **chosen
            )
            self.network = Transformer(settings)
        self.network.eval()
        self.seed, self.device, self.dtype = seed, torch.device("cpu"), torch.float32

    def to(self, device: torch.device | str) -> "AutoregressiveModel":
        """The model on a device; in bfloat16 on CUDA."""
        self.device = torch.device(device)
        self.network.to(self.device)
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        return self

    def fit(
        self, x: Tensor, *, steps: int, batch_size: int, learning_rate: float = 1e-3, max_minutes: float = math.inf,
        compiled: bool = False,
    ) -> "AutoregressiveModel":  # fmt: skip
        """Train on sequences x, (n, length), with Adam and a cosine schedule, for so many steps or minutes."""
        network = torch.compile(self.network) if compiled else self.network
        optimizer = torch.optim.AdamW(self.network.parameters(), learning_rate, betas=(0.9, 0.99), weight_decay=0.0)
        rng, begin, done = torch.Generator().manual_seed(self.seed), time.monotonic(), 0.0
        self.network.train()
        for step in range(steps):
            done = max((step + 1) / steps, (time.monotonic() - begin) / (60 * max_minutes))
            for group in optimizer.param_groups:
                group["lr"] = (
                    learning_rate * min(1.0, (step + 1) / _WARMUP) * 0.5 * (1 + math.cos(math.pi * min(1, done)))
                )
            rows = x[torch.randint(len(x), (batch_size,), generator=rng)].to(self.device)
            nats, counted = self._nats(network, rows)
            (nats.sum() / counted.sum()).backward()
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if done >= 1:
                break
        self.network.eval()
        return self

    @torch.no_grad()
    def bits_per_dim(self, x: Tensor, batch_size: int = 256) -> BitsPerDim:
        """Bits per label of sequences x, (n, length): exact, no bound."""
        parts = []
        for rows in x.split(batch_size):
            nats, counted = self._nats(self.network, rows.to(self.device))
            parts.append((nats.sum(-1) / counted.sum(-1) / math.log(2)).double().cpu())
        return BitsPerDim.mean_of(torch.cat(parts), "exact")

    def _nats(self, network: Callable[..., Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        """-log p of each label, zero for padding; and which labels count."""
        x = x.long()
        counted = x < self.num_labels
        x = torch.where(counted, x, self.num_labels)
        before = torch.cat([torch.full_like(x[:, :1], self.num_labels + 1), x[:, :-1]], 1)
        shown = to_digits(before, self.num_labels + 2).to(self.dtype)
        raw = network(shown, torch.zeros(len(x), device=x.device)).unflatten(1, (x.shape[1], -1)).float()
        nats = F.cross_entropy(raw.flatten(0, 1), x.flatten(), ignore_index=self.num_labels, reduction="none")
        return nats.reshape(x.shape), counted
