"""A new head and network for given data and process."""

import torch
from torch import Tensor

from blackout import validate
from blackout.labels import Conditions
from blackout.memory import check_memory
from blackout.network import HEADS, NETWORKS
from blackout.network.base import Network, NetworkSpec
from blackout.network.head import Head
from blackout.process.base import MarkovProcess

_PERIODS = {"small": (4.0, 16.0, 64.0)}  # waves at which the heads of a preset show counts
_MOST = 1 << 20  # classes, width and blocks of a network
_MANY = 16  # states beyond which ordered ones are treated as levels
_SEQUENCE = 16  # components from which a vector of labels is a sequence


def default_head(process: MarkovProcess, shape: tuple[int, ...] = ()) -> str:
    """The name of the head for a process, by its number of states and their order, and the shape of a data point.

    A vector of at least 16 unordered labels is a sequence.
    """
    if process.mean_suffices:
        return "gamma-poisson" if process.num_states is None else "bounded-logit"
    if not process.ordered and len(shape) == 1 and shape[0] >= _SEQUENCE:
        return "sequence"
    return "levels" if process.ordered and process.finite_states() > _MANY else "categorical"


def build_head(name: str, x: Tensor, process: MarkovProcess, preset: str = "tiny") -> Head:
    """A head by name, with the statistics of data x, (n, ...); "auto": the default of the process."""
    kind = HEADS[default_head(process, tuple(x.shape[1:])) if isinstance(name, str) and name == "auto" else name]
    head: Head = kind.for_data(x, process, _PERIODS.get(preset, ()) if isinstance(preset, str) else ())
    head.check(process)
    return head


def build_network(
    shape: tuple[int, ...],
    head: Head,
    process: MarkovProcess,
    *,
    kind: str = "auto",
    preset: str = "tiny",
    width: int = 0,
    blocks: int = 0,
    patch: int = 0,
    dropout: float | None = None,
    num_classes: int = 0,
    conditions: Conditions | None = None,
    seed: int = 0,
) -> Network:
    """A network for data points of a shape, with weights drawn from the seed.

    Parameters
    ----------
    kind
        A name of `NETWORKS`; "auto": a transformer for the head "sequence"; else NCSN++ for images and grids (channels,
        height, width) and an MLP for vectors.
    width, blocks, patch, dropout
        0 or None: the preset's.
    conditions
        What an MLP is conditioned on, instead of `num_classes`.
    """
    shape, seed = validate.shape(shape), validate.integer("seed", seed, 0)
    num_classes = validate.integer("num_classes", num_classes, 0, _MOST)
    width, blocks = validate.integer("width", width, 0, _MOST), validate.integer("blocks", blocks, 0, _MOST)
    if isinstance(kind, str) and kind == "auto":
        if len(shape) not in (1, 3):
            hint = "; a grid of labels has one channel: x[:, None]" if len(shape) == 2 else ""
            raise ValueError(f"data must be vectors or images (channels, height, width), got shape {shape}{hint}")
        kind = head.network or ("mlp" if len(shape) == 1 else "ncsnpp")
    spec = NetworkSpec(
        shape=shape,
        inputs=head.inputs(process),
        outputs=head.outputs(process),
        pyramid=head.pyramid_inputs,
        preset=preset,
        width=width,
        blocks=blocks,
        patch=patch,
        dropout=dropout,
        num_classes=num_classes,
        conditions=conditions,
        labels=head.labels,
        pad_state=process.pad_state,
    )
    with torch.device("meta"):  # without weights, which may be too large for the memory
        size = sum(weight.nbytes for weight in NETWORKS[kind].for_spec(spec).parameters())
    check_memory(f"a network of {size // 4:,} weights", size, "use a smaller width, or fewer blocks")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network: Network = NETWORKS[kind].for_spec(spec)
    return network
