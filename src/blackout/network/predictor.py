"""Predictor: a network and its head, from a state and a time to a posterior."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat

import torch
from torch import Tensor, nn

from blackout import validate
from blackout.labels import Conditions
from blackout.memory import check_memory
from blackout.network.base import Network
from blackout.network.head import Head, Observation
from blackout.posterior import Posterior
from blackout.process.base import MarkovProcess

_PIXELS = 1 << 14  # of all images of a pass on a CPU: 16 of 32x32
_SPAN = 15.0  # |log time| at the ends of the paper's grid; positions 0 to 1000 cover it


class Predictor(nn.Module):
    """The trainable part of a model.

    Time reaches the network as a position between 0 and 1000: through log(e^{γτ} - 1), continuously (`logit`), or as
    the index k on the grid of observation times (`index`), as in the authors' code.

    Parameters
    ----------
    network
        Any module with the call of `Network`.
    head
        What the network is shown and what its output means.
    process
        The forward process.
    time_input
        ``"logit"`` or ``"index"``.
    grid
        The observation times, for ``"index"``.
    """

    grid: Tensor

    def __init__(
        self,
        network: nn.Module,
        head: Head,
        process: MarkovProcess,
        time_input: str = "logit",
        grid: Tensor | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(network, nn.Module) or not isinstance(head, Head):
            name, value = ("head", head) if isinstance(network, nn.Module) else ("network", network)
            raise ValueError(f"{name} must be a {name} of blackout.network, got {validate.short(value)}")
        head.check(process)
        self.network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.head, self.process = head, process
        self.time_input = validate.choice("time_input", time_input, ("logit", "index"))
        if time_input == "index" and grid is None:
            raise ValueError("grid is needed for time_input='index', got None")
        self.register_buffer("grid", torch.zeros(0) if grid is None else grid.double(), persistent=False)
        self.dtype = torch.float32
        """What the network computes in; weights and heads stay in float32."""

    @property
    def num_classes(self) -> int:
        return self.network.num_classes if isinstance(self.network, Network) else 0

    @property
    def _exact_input(self) -> bool:
        return isinstance(self.network, Network) and self.network.exact_input

    @property
    def _input_dtype(self) -> torch.dtype:
        return torch.float32 if self._exact_input else self.dtype

    @property
    def class_weights(self) -> tuple[str, ...]:
        """Names of the weights for classes alone, see `Network.class_weights`; none without classes."""
        has = isinstance(self.network, Network) and self.num_classes
        return tuple(f"network.{name}" for name in self.network.class_weights) if has else ()

    @property
    def conditions(self) -> Conditions | None:
        return self.network.conditions if isinstance(self.network, Network) else None

    @property
    def size_unit(self) -> int:
        return self.network.size_unit if isinstance(self.network, Network) else 1

    def forward(self, observation: Observation) -> Tensor:
        """The raw outputs of each component, shape (batch, channels, ..., outputs)."""
        raw = self._call(*self._inputs(observation))
        return raw.unflatten(1, (observation.xt.shape[1], -1)).movedim(2, -1)

    def _call(self, shown: Tensor, position: Tensor, label: Tensor | None) -> Tensor:
        """The network's output; without gradient on a CPU, that of a large batch of images piece by piece.

        Activations of more than 32 MiB would go back to the system after each layer, to be cleared for the next.
        """
        precision = {"dtype": self.dtype} if self._exact_input else {}
        size, inferring = len(shown), not (torch.is_grad_enabled() or self.network.training)
        if inferring and shown.device.type == "cpu" and shown.dim() == 4:
            size = max(1, _PIXELS // math.prod(shown.shape[2:]))
        if len(shown) <= size:
            return self.network(shown, position, label, **precision)
        labels = repeat(None) if label is None else label.split(size)
        pieces = zip(shown.split(size), position.split(size), labels, strict=False)
        return torch.cat([self.network(*piece, **precision) for piece in pieces])

    def features(self, observation: Observation) -> Tensor:
        """The last hidden layer of the network, shape (batch, width), see `Network.features`."""
        return self.network.features(*self._inputs(observation))

    def _inputs(self, observation: Observation) -> tuple[Tensor, Tensor, Tensor | None]:
        """What the network is shown, its position in time, and its labels."""
        if self.time_input == "logit":
            position = (500 / _SPAN) * (_SPAN + observation.log_time)
        else:
            position = torch.searchsorted(self.grid, observation.t * (1 - 1e-9)).double()
        shown = self.head.encode(observation).to(self._input_dtype)
        if shown.dim() == 4:  # the layout in which convolutions are fastest, on a CPU and on a GPU
            shown = shown.contiguous(memory_format=torch.channels_last)
        return shown, position.float(), observation.label

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raise ValueError unless the network, which is on the device meta, maps data points of a shape to outputs.

        Statistics of the head must fit them too. Nothing is computed but one input of the network.
        """
        check_memory(f"a data point of shape {shape}", 64.0 * math.prod(shape), "it must be smaller")
        sizes = [self.head.inputs(self.process), self.head.outputs(self.process)]
        try:
            x = torch.zeros((1, *shape), dtype=torch.int64)
            observation = Observation(self.process, x, torch.ones(1, dtype=torch.float64), noise=x.float())
            shown = self.head.encode(observation).to("meta", self._input_dtype)
            raw = self._call(shown, torch.zeros(1, device="meta"), None)
        except NotImplementedError:  # a network of the user's that needs real data
            return
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"shape {list(shape)} does not fit network and head: {validate.one_line(error)}") from None
        for what, tensor, size in zip(("inputs", "outputs"), (shown, raw), sizes, strict=True):
            wanted = 1, size * shape[0], *shape[1:]
            if tuple(tensor.shape) != wanted:
                got = f"{what} of shape {list(tensor.shape)}, not {list(wanted)}"
                raise ValueError(f"shape {list(shape)} does not fit network and head: {got}")

    @property
    def has_dropout(self) -> bool:
        return any(isinstance(module, nn.Dropout) and module.p > 0 for module in self.network.modules())

    @contextmanager
    def with_dropout(self, seed: int | None) -> Iterator[None]:
        """Dropout is on inside, as in training, and its masks follow from the seed; None: it stays off."""
        if seed is None:
            yield
            return
        devices = [self.grid.device] if self.grid.device.type == "cuda" else []
        before = self.network.training
        with torch.random.fork_rng(devices):
            torch.manual_seed(seed)
            self.network.train()
            try:
                yield
            finally:
                self.network.train(before)

    def posterior(self, xt: Tensor, t: Tensor, label: Tensor | None = None, hidden: Tensor | None = None) -> Posterior:
        """The posterior of X_0 given X_t = xt at time t; `hidden` as in `Observation`."""
        return self.head.denoise(self, Observation(self.process, xt, t, hidden=hidden, label=label))
