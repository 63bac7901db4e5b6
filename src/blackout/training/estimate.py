"""The memory that training takes, before it begins."""

import math

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call

from blackout.memory import check_memory
from blackout.network import Predictor
from blackout.training.config import TrainConfig
from blackout.training.worker import uses_bfloat16

# Bytes for each weight beside the weights themselves: gradient, two moments, average, and the copy to go back to.
_PER_WEIGHT = 20
_PER_COPIED_WEIGHT = 4  # a second copy in bfloat16, with its gradients
_PER_STATE = 48  # of a batch: states, noise and their random numbers
_PER_OUTPUT = 40  # of the network: posterior and loss, in float32 and float64
_TRANSIENT = 1.4  # gradients of activations beside the activations, and room for what is not counted


def training_memory(predictor: Predictor, shape: tuple[int, ...], config: TrainConfig, device: torch.device) -> int:
    """Bytes that training on data points of a shape allocates on a device, beside data and weights."""
    half = uses_bfloat16(config.run.precision, device)
    weights = sum(weight.numel() for weight in predictor.parameters())
    batch, states = config.optimiser.batch_size, math.prod(shape)
    outputs = states * predictor.head.outputs(predictor.process)
    activations = activation_memory(predictor, shape, torch.bfloat16 if half else torch.float32)
    part = batch // config.optimiser.accumulate
    return int(
        weights * (_PER_WEIGHT + half * _PER_COPIED_WEIGHT)
        + batch * states * _PER_STATE
        + part * (outputs * _PER_OUTPUT + activations * _TRANSIENT)
    )


def check_training_memory(
    predictor: Predictor, shape: tuple[int, ...], config: TrainConfig, device: torch.device
) -> None:
    """Raise ValueError if training does not fit in the memory of a device."""
    advice = "use a smaller batch_size (--batch-size), more micro-batches (--accumulate) or a smaller width"
    if len(shape) == 3:
        advice += ", or smaller images (--image-size)"
    batch, size = config.optimiser.batch_size, " x ".join(map(str, shape))
    what = f"training in batches of {batch:,} data points of {size}"
    check_memory(what, training_memory(predictor, shape, config, device), advice, device)


def activation_memory(predictor: Predictor, shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """Bytes that the network keeps of one data point for the gradient, counted on the meta device."""
    network = predictor.network
    weights = {name: torch.empty_like(w, device="meta", dtype=dtype) for name, w in network.named_parameters()}
    weights |= {name: torch.empty_like(w, device="meta") for name, w in network.named_buffers()}
    kept: dict[int, Tensor] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    inputs = predictor.head.inputs(predictor.process)
    x = torch.empty((1, inputs * shape[0], *shape[1:]), device="meta", dtype=dtype)
    label = torch.zeros(1, device="meta", dtype=torch.long) if predictor.num_classes else None
    try:
        with saved_tensors_hooks(note, lambda tensor: tensor):
            functional_call(network, {k: w.requires_grad_(w.is_floating_point()) for k, w in weights.items()},
                            (x, torch.zeros(1, device="meta"), label))  # fmt: skip
    except (NotImplementedError, RuntimeError, TypeError):  # a network of the user's that needs real data
        return 0
    for weight in weights.values():
        kept.pop(weight.untyped_storage()._cdata, None)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
