"""A training step and a pass of the network, against the device's own ceiling for matrix products."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from blackout.bench.clock import seconds, synchronise
from blackout.network import Predictor
from blackout.training.build import build_predictor, build_process, build_times
from blackout.training.config import TrainConfig
from blackout.training.loop import Trainer

_MATRIX = ("gemm", "conv", "wgrad", "dgrad", "fprop", "cutlass", "cudnn", "xmma", "flash", "attention", "nvjet", "sm90")


@dataclass(frozen=True)
class Speed:
    """One kind of work, measured."""

    name: str
    batch: int
    seconds: float
    tflops: float
    ceiling_tflops: float
    shares: dict[str, float]
    """Seconds on the device by kind of kernel."""


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def matrix_ceiling() -> float:
    """TFLOP/s of a large matrix product on random data, in the dtype that the network would use."""
    size, dtype = (8192, torch.bfloat16) if device().type == "cuda" else (1024, torch.float32)
    a, b = (torch.randn(size, size, device=device(), dtype=dtype) for _ in range(2))
    return 2 * size**3 / seconds(lambda: a @ b, 10) / 1e12


def train_speed(preset: str = "paper", batch: int = 256, compiled: bool = True, repeats: int = 20) -> Speed:
    """Whole training steps: draws, network forward and backward, optimiser, averaged weights."""
    config = TrainConfig(
        preset=preset,
        batch_size=batch,
        compile=compiled,
        compile_mode="reduce-overhead",
        head="softplus",
        loss="instantaneous",
        flip=True,
    )
    x = torch.randint(0, 256, (max(1024, batch), 3, 32, 32), dtype=torch.uint8)
    predictor = _predictor(config)
    flops = 3 * _flops(predictor, batch)
    trainer = Trainer(config, predictor, build_process(config), build_times(config))
    data = x.to(trainer.device)

    def work() -> None:
        trainer._update(data, None)
        trainer.step += 1

    return _speed(f"training step, {preset}", batch, work, flops, repeats)


def sample_speed(preset: str = "paper", batch: int = 512, compiled: bool = True, repeats: int = 20) -> Speed:
    """The network alone, as a sampler calls it."""
    predictor = _predictor(TrainConfig(preset=preset, head="softplus")).to(device()).eval()
    flops = _flops(predictor, batch)
    if device().type == "cuda":
        predictor.dtype = torch.bfloat16
    xt = torch.randint(0, 256, (batch, 3, 32, 32), device=device()).contiguous(memory_format=torch.channels_last)
    t = torch.full((batch,), 0.7, dtype=torch.float64, device=device())
    call = torch.compile(predictor, mode="reduce-overhead") if compiled else predictor

    @torch.inference_mode()
    def work() -> None:
        call(xt, t)

    return _speed(f"network without gradient, {preset}", batch, work, flops, repeats)


def _predictor(config: TrainConfig) -> Predictor:
    statistics = (torch.full((3, 1, 1), 120.0), torch.full((3, 1, 1), 63.0))
    return build_predictor(config, torch.Size((3, 32, 32)), statistics, 0)


def _flops(predictor: Predictor, batch: int) -> float:
    """Floating-point operations of the network's matrix work for a whole batch, forward.

    Counted where nothing is computed: the attention of a CPU is one that the counter does not know.
    """
    shape = copy.deepcopy(predictor).to("meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        shape(torch.zeros(1, 3, 32, 32, device="meta"), torch.ones(1, device="meta"))
    return float(counter.get_total_flops()) * batch


def _speed(name: str, batch: int, work: Callable[[], None], flops: float, repeats: int) -> Speed:
    taken = seconds(work, repeats)
    return Speed(name, batch, taken, flops / taken / 1e12, matrix_ceiling(), _shares(work))


def _shares(work: Callable[[], None]) -> dict[str, float]:
    if not torch.cuda.is_available():
        return {}
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        work()
        synchronise()
    shares = {"matrix products and convolutions": 0.0, "fused element-wise and reductions": 0.0, "other kernels": 0.0}
    for event in record.key_averages():
        name, spent = event.key.lower(), event.self_device_time_total / 1e6
        if "triton" in name or name in ("_forward", "_backward"):  # the compiler's, and ours
            shares["fused element-wise and reductions"] += spent
        elif any(word in name for word in _MATRIX):
            shares["matrix products and convolutions"] += spent
        else:
            shares["other kernels"] += spent
    return shares
