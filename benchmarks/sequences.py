"""Bits per character of the held-out standard library: masking, uniform, a generator of one's own, and references.

One network for all, the same time of training for each: `python -m benchmarks.sequences --minutes 30 --preset small`
on one GPU takes about two hours and a half; `--minutes 2.5 --preset tiny` as long on a CPU core as it says.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch

from blackout.data import Alphabet, Dataset, open_dataset
from blackout.evaluation import AutoregressiveModel, xz_bits
from blackout.model import DiffusionModel
from blackout.process import FiniteState
from blackout.recipes import build_model
from blackout.training.automatic import sequence_config
from blackout.training.config import TrainConfig

_TRIAL = 10  # steps by which the speed is measured
_TIMES = 16
_BOUND = 32  # sequences for the bits of few steps


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


def steps_for(seconds: float, run: Callable[[int], None]) -> int:
    """How many steps take so many seconds, by two trials, which differ in their number alone; one before compiles."""
    run(3)
    spent = []
    for count in (_TRIAL, 3 * _TRIAL):
        begin = clock()
        run(count)
        spent.append(clock() - begin)
    return max(1, int(seconds / max(spent[1] - spent[0], 1e-9) * 2 * _TRIAL))


def diffusion(process: str, config: TrainConfig, data: Dataset, test: torch.Tensor, seconds: float, out: Path) -> Any:
    """Train and measure a diffusion model; its weights are kept in a folder."""

    def fresh() -> DiffusionModel:
        if process != "classes":
            return build_model(config.replace(process=process), data)
        assert data.alphabet is not None
        made = DiffusionModel.for_data(
            data.x, class_generator(data.alphabet), preset=config.network.preset, width=config.network.width,
            blocks=config.network.blocks, seed=config.run.seed,
        )  # fmt: skip
        return made.with_record(alphabet=data.alphabet)

    trial = fresh()
    few = config.replace(warmup=0, log_every=10**6, checkpoint_every=10**6)
    steps = steps_for(seconds, lambda count: trial.train(few.replace(steps=count), data.x) and None)
    model, begin = fresh(), clock()
    model.train(
        config.replace(steps=steps, checkpoint_every=10**6, warmup=min(config.optimiser.warmup, steps // 10)), data.x
    )
    spent = clock() - begin
    bits = model.bits_per_dim(test, num_times=_TIMES)
    model.save(out / process)
    text = model.record.alphabet.texts(model.sample(2, seed=0)) if model.record.alphabet else []
    few_steps = {n: float(sampler_bits(model, test[:_BOUND], n)) for n in (8, 32, 128)}
    parameters = sum(p.numel() for p in model.predictor.parameters())
    return {"bits": float(bits), "error": bits.standard_error, "steps": steps, "seconds": spent, "samples": text,
            "sampler_bits": few_steps, "parameters": parameters}  # fmt: skip


def sampler_bits(model: DiffusionModel, x: torch.Tensor, num_steps: int) -> torch.Tensor:
    """Bits per label of the sampler's own steps, few as they are."""
    times, x = model.sampling_times(num_steps), x.to(model.device)
    nats = model.sampler("posterior").bound(model.denoiser(), model.process, times, x)
    return nats.mean() / (numpy.log(2) * x.shape[1])


def autoregressive(config: TrainConfig, data: Dataset, test: torch.Tensor, seconds: float) -> Any:
    """Train and measure the autoregressive reference."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = {name: value for name in ("width", "blocks") if (value := config[name])}
    options = {"batch_size": config.optimiser.batch_size, "learning_rate": config.optimiser.learning_rate,
               "compiled": config.run.compile}  # fmt: skip
    length = data.x.shape[1]

    def fresh() -> AutoregressiveModel:
        return AutoregressiveModel(data.max_state + 1, length, config.network.preset, **sizes).to(device)

    trial = fresh()
    steps = steps_for(seconds, lambda count: trial.fit(data.x, steps=count, **options) and None)
    model, begin = fresh(), clock()
    model.fit(data.x, steps=steps, **options)
    spent = clock() - begin
    bits = model.bits_per_dim(test)
    return {"bits": float(bits), "error": bits.standard_error, "steps": steps, "seconds": spent}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="of training for each model")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--width", type=int, default=0)
    parser.add_argument("--blocks", type=int, default=0)
    parser.add_argument("--length", type=int, default=0)
    parser.add_argument("--test", type=int, default=512, help="held-out sequences that are measured")
    parser.add_argument("--models", nargs="+", default=["absorbing", "autoregressive", "uniform", "classes"])
    parser.add_argument("--out", type=Path, default=Path("runs/sequences"))
    options = parser.parse_args()
    config = sequence_config("cuda" if torch.cuda.is_available() else "cpu").replace(
        preset=options.preset, width=options.width, blocks=options.blocks
    )
    length = options.length or config.data.length
    train, test = (open_dataset("stdlib", split, length=length) for split in ("train", "test"))
    assert train.alphabet is not None
    texts = ["".join(train.alphabet.texts(part.x)).encode() for part in (train, test)]
    options.out.mkdir(parents=True, exist_ok=True)
    characters = test.x.numel()
    result: dict[str, Any] = {
        "data": train.name,
        "length": length,
        "xz": {"bits": xz_bits(texts[1], labels=characters)},
        "xz after training data": {"bits": xz_bits(texts[1], texts[0], characters)},
    }
    for name in options.models:
        if name == "autoregressive":
            result[name] = autoregressive(config, train, test.x[: options.test], 60 * options.minutes)
        else:
            held_out = test.x[: options.test]
            result[name] = diffusion(name, config, train, held_out, 60 * options.minutes, options.out)
        (options.out / "result.json").write_text(json.dumps(result, indent=1))
        print(name, json.dumps(result[name]), flush=True)
    print(json.dumps({name: value["bits"] for name, value in result.items() if isinstance(value, dict)}))


if __name__ == "__main__":
    main()
