"""Bits per character of the held-out standard library: masking, uniform, a generator of one's own, and references.

One network for all, and the same time of training for each, over several seeds.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch

from blackout.data import Alphabet, Dataset, open_dataset
from blackout.evaluation import AutoregressiveModel, xz_bits
from blackout.files import read_json, write_json
from blackout.model import DiffusionModel
from blackout.process import FiniteState
from blackout.recipes import build_model
from blackout.training.automatic import sequence_config
from blackout.training.config import TrainConfig

MODELS = ("absorbing", "uniform", "classes", "autoregressive")
STEPS = (8, 32, 128)  # of the sampler, whose bits are measured
Result = dict[str, Any]
_TRIAL = 10  # training steps by which the speed is measured
_TIMES = 32  # of the bound, for each sequence
_AVERAGED = 15  # the moving average is over about 1/15 of the training steps
_FEW = 64  # sequences for the bound of the sampler's steps
_SAMPLES = 2


def run(
    out: Path, minutes: float, length: int, num_data: int, seeds: int, models: Sequence[str], **options: Any
) -> Iterator[Result]:
    """Train and measure models one after the other; results that `out` has already are not measured again.

    ValueError for a result of other options.

    `options` are those of the training that all models share; with `steps`, `minutes` is not used.
    """
    config = sequence_config("cuda" if torch.cuda.is_available() else "cpu")
    by_time = "steps" not in options
    config = config.replace(**options)
    train, test = (open_dataset("stdlib", split, length=length or config.data.length) for split in ("train", "test"))
    held_out = spread(test.x, num_data)
    for seed in range(seeds):
        for name in models:
            folder = out / f"{name}-{seed}"
            about = {"model": name, "seed": seed, "data": train.name, "sequences": len(held_out), "options": options}
            about |= {"length": train.x.shape[1], "minutes": minutes if by_time else 0.0}
            if not (folder / "result.json").exists():
                measure = autoregressive if name == "autoregressive" else diffusion
                result = measure(name, config.replace(seed=seed), train, held_out, 60 * about["minutes"], folder)
                folder.mkdir(parents=True, exist_ok=True)
                write_json(folder / "result.json", about | result)
            result = read_json(folder / "result.json")
            if changed := [key for key, value in about.items() if result[key] != value]:
                raise ValueError(f"{folder} holds a result of other {', '.join(changed)}: choose another folder")
            yield result


def compressed(length: int) -> Iterator[tuple[str, float]]:
    """Bits per character of `xz -9e`: of the held-out text, and of the same after the training text."""
    train, test = (open_dataset("stdlib", split, length=length) for split in ("train", "test"))
    assert test.alphabet is not None
    texts = ["".join(test.alphabet.texts(part.x)).encode() for part in (train, test)]
    yield "xz", xz_bits(texts[1], labels=test.x.numel())
    yield "xz after the training text", xz_bits(texts[1], texts[0], test.x.numel())


def spread(x: torch.Tensor, num: int) -> torch.Tensor:
    """So many rows, evenly spaced, so that they are of many files."""
    return x[torch.linspace(0, len(x) - 1, min(num, len(x))).long()]


def class_generator(alphabet: Alphabet, away: float = 0.2) -> FiniteState:
    """Characters are redrawn within their class (capitals, digits, ...) at rate one, and from all at rate `away`."""
    kinds = [str.islower, str.isupper, str.isdigit, str.isspace]
    classes = numpy.array([next((k for k, kind in enumerate(kinds) if kind(c)), len(kinds)) for c in alphabet.symbols])
    same = classes[:, None] == classes
    rates = same / same.sum(1, keepdims=True) + away / len(classes)
    return FiniteState(rates - numpy.diag(rates.sum(1)), ordered=False)


def clock() -> float:
    """Seconds of the GPU, if there is one, or else of this process on the CPU, whatever else runs there."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.monotonic()
    return time.process_time()


def steps_for(seconds: float, run: Callable[[int], object]) -> int:
    """How many steps take so many seconds, by two trials, which differ in their number alone; one before compiles."""
    run(3)
    spent = []
    for count in (_TRIAL, 3 * _TRIAL):
        begin = clock()
        run(count)
        spent.append(clock() - begin)
    return max(1, int(seconds / max(spent[1] - spent[0], 1e-9) * 2 * _TRIAL))


def diffusion(
    process: str, config: TrainConfig, data: Dataset, test: torch.Tensor, seconds: float, folder: Path
) -> Result:
    """Train and measure a diffusion model; its weights are kept in a folder. No seconds: the steps of `config`."""

    def fresh() -> DiffusionModel:
        if process != "classes":
            return build_model(config.replace(process=process), data)
        assert data.alphabet is not None
        made = DiffusionModel.for_data(
            data.x, class_generator(data.alphabet), preset=config.network.preset, width=config.network.width,
            blocks=config.network.blocks, dropout=_dropout(config), seed=config.run.seed,
        )  # fmt: skip
        return made.with_record(alphabet=data.alphabet)

    quiet, steps = config.replace(log_every=10**6, checkpoint_every=10**6), config.optimiser.steps
    if seconds:
        trial = fresh()
        steps = steps_for(seconds, lambda count: trial.train(quiet.replace(steps=count, warmup=0), data.x))
    pace = {"warmup": min(config.optimiser.warmup, steps // 10), "ema": max(0.0, 1 - _AVERAGED / steps)}
    model, begin = fresh(), clock()
    model.train(quiet.replace(steps=steps, **pace), data.x)
    spent = clock() - begin
    model.save(folder)
    bits = model.bits_per_dim(test, num_times=_TIMES)
    texts = model.record.alphabet.texts(model.sample(_SAMPLES, seed=0)) if model.record.alphabet else []
    parameters = sum(p.numel() for p in model.predictor.parameters())
    return {"bits": float(bits), "error": bits.standard_error, "steps": steps, "seconds": spent,
            "training bits": float(model.bits_per_dim(spread(data.x, len(test)), num_times=_TIMES)),
            "parameters": parameters, "sampler": sampler_bits(model, spread(test, _FEW)), "samples": texts}  # fmt: skip


def sampler_bits(model: DiffusionModel, x: torch.Tensor) -> dict[str, float]:
    """Bits per label of the sampler's own steps, and of the bound in continuous time on the same sequences."""
    found = {}
    for steps in STEPS:
        nats = model.sampler("posterior").bound(
            model.denoiser(), model.process, model.sampling_times(steps), x.to(model.device)
        )
        found[f"{steps} steps"] = float(nats.mean()) / (math.log(2) * x.shape[1])
    return found | {"continuous": float(model.bits_per_dim(x, num_times=4 * _TIMES))}  # more times for fewer data


def autoregressive(
    name: str, config: TrainConfig, data: Dataset, test: torch.Tensor, seconds: float, folder: Path
) -> Result:
    """Train and measure the autoregressive reference."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = {name: value for name in ("width", "blocks") if (value := config[name])}
    if (dropout := _dropout(config)) is not None:
        sizes["dropout"] = dropout
    options = {"batch_size": config.optimiser.batch_size, "learning_rate": config.optimiser.learning_rate,
               "compiled": config.run.compile}  # fmt: skip

    def fresh() -> AutoregressiveModel:
        shape = data.max_state + 1, data.x.shape[1]
        return AutoregressiveModel(*shape, config.network.preset, config.run.seed, **sizes).to(device)

    steps = config.optimiser.steps
    if seconds:
        trial = fresh()
        steps = steps_for(seconds, lambda count: trial.fit(data.x, steps=count, **options))
    model, begin = fresh(), clock()
    model.fit(data.x, steps=steps, **options)
    spent = clock() - begin
    parameters = sum(p.numel() for p in model.network.parameters())
    bits = model.bits_per_dim(test)
    return {"bits": float(bits), "error": bits.standard_error, "steps": steps, "seconds": spent,
            "training bits": float(model.bits_per_dim(spread(data.x, len(test)))),
            "parameters": parameters}  # fmt: skip


def _dropout(config: TrainConfig) -> float | None:
    """The dropout of a configuration; None: the preset's."""
    return config.network.dropout if config.network.dropout >= 0 else None
