"""ReactionModel: a reaction network and a neural network for its reverse rates; trained, sampled, measured, saved."""

import copy
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.bits import BitsPerDim
from blackout.files import read_json
from blackout.network import MLP, MLPConfig
from blackout.random import Streams, categorical
from blackout.reactions import REACTIONS
from blackout.reactions.clock import LogClock
from blackout.reactions.divergence import path_bound, path_divergence
from blackout.reactions.network import ReactionNetwork, check_network
from blackout.reactions.reverse import sample_reverse
from blackout.training.saved import read_weights, write_model
from blackout.training.weights import load_weights, restore_weights

_FORMAT = "reactions-1"
_STARTS = 1024  # draws of X_T that a model keeps
_EARLIEST = 0.05  # events that are expected before the first time
_LARGEST = 12.0  # logarithm of the largest factor between κ and its reference


class ReactionModel:
    """What is trained, sampled and saved for a reaction network: its reverse rates κ_r(x, t) are a network's output.

    Algorithms 3 and 4 without conditional rates: docs/mathematics.md#coupled-components. `for_data` chooses the rest.

    Parameters
    ----------
    process, clock
        The reaction network, and its time scale from the first to the last time.
    scale
        Counts are divided by it for the network.
    width, blocks, seed
        Size of the network, and the seed of its first weights.

    Examples
    --------
    >>> import blackout as bo
    >>> x = torch.tensor([[6, 0, 0, 0], [0, 0, 0, 6]]).repeat(50, 1)
    >>> model = bo.ReactionModel.for_data(x, bo.Exchange((2, 2)), width=16, blocks=1)
    >>> model.fit(x, steps=2, batch_size=8).sample(5, num_steps=10).sum(1)
    tensor([6, 6, 6, 6, 6])
    """

    def __init__(
        self,
        process: ReactionNetwork,
        clock: LogClock,
        scale: float = 1.0,
        *,
        width: int = 128,
        blocks: int = 2,
        seed: int = 0,
    ) -> None:
        self.process, self.clock = check_network(process), clock
        if not isinstance(clock, LogClock):
            raise ValueError(f"clock must be a LogClock, got {validate.short(clock)}")
        self.scale, width = validate.real("scale", scale, 0.0, strict=True), validate.integer("width", width, 4)
        inputs, outputs = 2 * process.num_components, process.num_channels
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(validate.integer("seed", seed, 0))
            self.network = MLP(MLPConfig(features=1, width=width, blocks=blocks, inputs=inputs, outputs=outputs))
        self.network.eval()
        self.starts: Tensor | None = None

    def __repr__(self) -> str:
        weights = sum(p.numel() for p in self.network.parameters())
        state = "not trained" if self.starts is None else "trained"
        return f"ReactionModel({self.process!r}, ends at t={self.clock.t_end:.4g}, {weights:,} weights, {state})"

    @staticmethod
    def for_data(
        x: Any,
        process: ReactionNetwork,
        t_end: float | None = None,
        *,
        width: int = 128,
        blocks: int = 2,
        seed: int = 0,
    ) -> "ReactionModel":
        """A new model for data like x, integers of shape (n, D).

        `t_end` is the time at which the process has forgotten the data but for what it conserves. Its default needs
        a process with a known relaxation rate γ: (3.5 + log(largest total) / 2) / γ.
        """
        x, activity = _check_data(process, x)
        if t_end is None:
            if process.relaxation_rate is None:
                raise ValueError(
                    f"t_end is needed: the relaxation rate of {type(process).__name__} is not known, got None"
                )
            t_end = (3.5 + 0.5 * math.log(max(1, int(x.sum(-1).max())))) / process.relaxation_rate
        t_first = min(_EARLIEST / activity, validate.real("t_end", t_end, 0.0, strict=True) / 10)
        scale = max(1.0, float(x.double().square().mean().sqrt()))
        return ReactionModel(process, LogClock(t_first, t_end), scale, width=width, blocks=blocks, seed=seed)

    def rates(self, x: Tensor, t: Tensor) -> Tensor:
        """κ_r(x, t) for states (batch, D) at times (batch,), float32 of shape (batch, R).

        The reference rates of the process, which are right at equilibrium, times the exponential of the network.
        """
        counts = x.float()
        inputs = torch.cat([counts / self.scale, torch.log1p(counts)], -1)
        raw = self.network(inputs, 1000 * self.clock.place(t).float())
        return self.process.reference_rates(x).float() * torch.exp(_LARGEST * torch.tanh(raw / _LARGEST))

    def fit(
        self,
        x: Any,
        *,
        steps: int = 2000,
        batch_size: int = 256,
        learning_rate: float = 2e-3,
        ema: float = 0.99,
        num_paths: int = 512,
        num_times: int = 32,
        seed: int = 0,
        callback: Callable[[int, float], None] | None = None,
    ) -> "ReactionModel":
        """Train on integers x of shape (n, D); the averaged weights are kept.

        `num_paths` paths at `num_times` times each are simulated at once, exactly, and used up in random order before
        the next. callback(step, loss) follows each step. The loss is `path_divergence` times a weight over time, that
        of the evidence bound until the data have reacted about once, then less: late times have much noise and few
        bits.
        """
        x, activity = _check_data(self.process, x)
        generator = torch.Generator().manual_seed(validate.integer("seed", seed, 0))
        learning_rate = validate.real("learning_rate", learning_rate, 0.0, strict=True)
        if validate.real("ema", ema, 0.0) >= 1:
            raise ValueError(f"ema must be less than 1, got {ema}")
        validate.function("callback", callback, optional=True)
        averaged = copy.deepcopy(self.network).requires_grad_(False)
        optimizer = torch.optim.Adam(self.network.parameters(), lr=learning_rate, betas=(0.9, 0.99))
        batches = self._batches(x, batch_size, num_paths, num_times, generator)
        for step in range(validate.integer("steps", steps, 1)):
            optimizer.param_groups[0]["lr"] = learning_rate * 0.5 * (1 + math.cos(math.pi * step / steps))
            states, times = next(batches)
            channel = categorical(self.process.propensities(states), generator)
            each = path_divergence(self.rates, self.process, states, times, channel)
            loss = (self.clock.stretch(times) / (1 + activity * times) * each).mean() / x.shape[1]
            if not bool(torch.isfinite(loss)):
                self.network.load_state_dict(averaged.state_dict())
                raise ValueError(
                    f"learning_rate must be lower: the loss is {float(loss)} at step {step}, got {learning_rate}"
                )
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            optimizer.step()
            decay = min(ema, (1 + step) / (10 + step))
            torch._foreach_lerp_(list(averaged.parameters()), list(self.network.parameters()), 1 - decay)
            if callback is not None:
                callback(step, float(loss.detach()))
        chosen = x[torch.randint(len(x), (_STARTS,), generator=generator)]
        self.starts = self.process.sample(chosen, self.clock.t_end, generator)
        self.network.load_state_dict(averaged.state_dict())
        return self

    def _batches(
        self, x: Tensor, batch_size: int, num_paths: int, num_times: int, generator: torch.Generator
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Simulated states and their times."""
        batch_size = validate.integer("batch_size", batch_size, 1)
        num_paths, num_times = validate.integer("num_paths", num_paths, 1), validate.integer("num_times", num_times, 1)
        while True:
            chosen = x[torch.randint(len(x), (num_paths,), generator=generator)]
            times = self.clock.strata(torch.rand(num_paths, num_times, dtype=torch.float64, generator=generator))
            states = self.process.sample_path(chosen, times, generator).flatten(0, 1)
            order = torch.randperm(len(states), generator=generator)
            for part in order.split(batch_size):
                yield states[part], times.flatten()[part]

    def sample(
        self, num: int, num_steps: int = 200, seed: int = 0, *, method: str = "leaps", trajectory: bool = False
    ) -> Tensor:
        """Samples, int64 of shape (num, D), or all states from X_T to X_0, shape (num_steps + 1, num, D).

        The start is a draw of X_T kept from training, simulated for another t_end: so the conserved quantities are
        those of the data, and the rest is new. `method` as in `sample_reverse`.
        """
        if self.starts is None:
            raise ValueError("the model has no draws of X_T yet: call fit")
        num, seed = validate.integer("num", num, 0), validate.integer("seed", seed, 0)
        source = Streams(2 * seed, num)
        kept = self.starts[(source.uniform((num,)) * len(self.starts)).long()]
        start = self.process.sample(kept, self.clock.t_end, source)
        times = self.clock.grid(num_steps)
        return sample_reverse(
            self.rates, self.process, times, start, 2 * seed + 1, method=method, trajectory=trajectory
        )

    def bits_per_dim(self, x: Any, seed: int = 0, *, num_times: int = 32) -> BitsPerDim:
        """The evidence bound of data x, (n, D), given their conserved quantities, in bits for each component."""
        (x,) = self.process.check_states(x=x)
        bound = path_bound(self.rates, self.process, x, self.clock, num_times, seed)
        return BitsPerDim.mean_of(bound / (math.log(2) * x.shape[1]))

    def config(self) -> dict[str, Any]:
        """Everything but the weights, as plain JSON."""
        return {
            "format": _FORMAT,
            "process": REACTIONS.to_config(self.process),
            "clock": [self.clock.t_first, self.clock.t_end],
            "scale": self.scale,
            "width": self.network.settings.width,
            "blocks": self.network.settings.blocks,
        }

    def save(self, folder: str | Path) -> Path:
        """Write model.json, and the weights as safetensors."""
        if self.starts is None:
            raise ValueError("the model has no draws of X_T yet: call fit")
        weights = {**self.network.state_dict(), "starts": self.starts.float()}
        return write_model(Path(folder), self.config(), weights, torch.float32)

    @staticmethod
    def load(folder: str | Path) -> "ReactionModel":
        """A model that `save` has written."""
        description = Path(folder) / "model.json"

        def check(config: dict[str, Any]) -> None:
            if config.get("format") != _FORMAT:
                raise ValueError(f"{description} does not describe a model of reactions in the format {_FORMAT}")

        config = read_json(description, check)
        weights = restore_weights(read_weights(Path(folder), config["weights"]))
        process, clock = REACTIONS.from_config(config["process"]), LogClock(*config["clock"])
        sizes = {name: config[name] for name in ("width", "blocks")}
        model = ReactionModel(process, clock, config["scale"], **sizes)
        if "starts" not in weights:
            raise ValueError(f"{folder} has no weights of a model of reactions: no starts among them")
        model.starts = weights.pop("starts").long()
        load_weights(model.network, weights, description)
        return model


def _check_data(process: ReactionNetwork, x: Any) -> tuple[Tensor, float]:
    """Data as states (n, D), and their mean number of reactions per unit of time."""
    (x,) = check_network(process).check_states(x=x)
    activity = float(process.propensities(x).sum(-1).mean()) if len(x) else 0.0
    if not activity > 0:
        raise ValueError(f"x must hold data of which some can react, got {len(x)} rows without a reaction")
    return x, activity
