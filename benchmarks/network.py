"""Time of a training step and of a network pass, compared with the device's speed of matrix products."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.timing import seconds, synchronise
from blackout.data import Dataset
from blackout.model import DiffusionModel
from blackout.network.head import Observation
from blackout.recipes import build_model
from blackout.training.config import TrainConfig
from blackout.training.loop import Trainer

_MATRIX = ("gemm", "conv", "wgrad", "dgrad", "fprop", "cutlass", "cudnn", "xmma", "flash", "attention", "nvjet", "sm90")


@dataclass(frozen=True)
class Speed:
    """Result of one benchmark. `kernels` holds seconds on the device by kind of kernel."""

    name: str
    batch_size: int
    seconds: float
    tflops: float
    matrix_tflops: float
    kernels: dict[str, float]


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def matrix_tflops() -> float:
    """Return the TFLOP/s of a large matrix product of random data, in the dtype of the network."""
    size, dtype = (8192, torch.bfloat16) if device().type == "cuda" else (1024, torch.float32)
    a, b = (torch.randn(size, size, device=device(), dtype=dtype) for _ in range(2))
    return 2 * size**3 / seconds(lambda: a @ b, 10) / 1e12


def train_speed(preset: str = "paper", batch_size: int = 256, compiled: bool = True, repeats: int = 20) -> Speed:
    """Time training steps: noise, network forward and backward, optimiser, averaged weights."""
    config = TrainConfig().replace(
        preset=preset, batch_size=batch_size, compile=compiled, compile_mode="reduce-overhead", head="softplus",
        loss="instantaneous", flip=True,
    )  # fmt: skip
    x = _images(max(1024, batch_size))
    model = build_model(config, Dataset(x=x, name="random", max_state=255))
    flops = 3 * _flops(model, batch_size)
    trainer = Trainer(config, model.predictor, model.times)
    trainer.worker.module.train()
    data = x.to(trainer.device)

    def work() -> None:
        trainer.update(data, None)
        trainer.step += 1

    return _speed(f"training step, {preset}", batch_size, work, flops, repeats)


def sample_speed(preset: str = "paper", batch_size: int = 512, compiled: bool = True, repeats: int = 20) -> Speed:
    """Time passes of the network without gradient, as a sampler calls it."""
    config = TrainConfig().replace(preset=preset, head="softplus")
    model = build_model(config, Dataset(x=_images(64), name="random", max_state=255))
    flops = _flops(model, batch_size)
    model.to(device())
    if compiled:
        model.compile()
    xt = _images(batch_size).to(device(), torch.int64).contiguous(memory_format=torch.channels_last)
    t = torch.full((batch_size,), 0.7, dtype=torch.float64, device=device())

    @torch.inference_mode()
    def work() -> None:
        model.posterior(xt, t).difference()

    return _speed(f"network without gradient, {preset}", batch_size, work, flops, repeats)


def _images(number: int) -> Tensor:
    return torch.randint(0, 256, (number, 3, 32, 32), dtype=torch.uint8)


def _flops(model: DiffusionModel, batch_size: int) -> float:
    """Floating-point operations of the network's matrix products and convolutions, forward, for a batch.

    Counted on the meta device: the counter does not know the CPU's attention.
    """
    predictor = copy.deepcopy(model.predictor).to("meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        predictor(Observation(model.process, torch.zeros(1, 3, 32, 32, device="meta"), torch.ones(1, device="meta")))
    return float(counter.get_total_flops()) * batch_size


def _speed(name: str, batch_size: int, work: Callable[[], None], flops: float, repeats: int) -> Speed:
    taken = seconds(work, repeats)
    return Speed(name, batch_size, taken, flops / taken / 1e12, matrix_tflops(), _kernels(work))


def _kernels(work: Callable[[], None]) -> dict[str, float]:
    if not torch.cuda.is_available():
        return {}
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        work()
        synchronise()
    kernels = {"matrix products and convolutions": 0.0, "fused element-wise and reductions": 0.0, "other kernels": 0.0}
    for event in record.key_averages():
        name, spent = event.key.lower(), event.self_device_time_total / 1e6
        if "triton" in name or name in ("_forward", "_backward"):  # the compiler's kernels, and ours
            kernels["fused element-wise and reductions"] += spent
        elif any(word in name for word in _MATRIX):
            kernels["matrix products and convolutions"] += spent
        else:
            kernels["other kernels"] += spent
    return kernels
