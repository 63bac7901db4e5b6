"""References for bits per label of sequences: a compressor, and an autoregressive transformer of the same size."""

from typing import Any

import torch
from torch import Tensor

from blackout.data import Dataset
from blackout.evaluation.autoregressive import AutoregressiveModel
from blackout.evaluation.ngrams import xz_bits
from blackout.model import DiffusionModel


def references(model: DiffusionModel, test: Dataset, train: Dataset, x: Tensor, seed: int) -> dict[str, Any]:
    """Bits per label of held-out sequences: all of them under the compressor, x of them under the transformer.

    The latter has the width and the blocks of the model's network, and sees as many batches as that has seen.
    """
    steps = sum(run.steps for run in model.record.runs)
    if not steps:
        raise ValueError("references need a model whose training is recorded, got one without training runs")
    network, batch_size = model.config()["network"], model.record.runs[-1].batch_size
    sizes = {name: network[name] for name in ("width", "blocks", "dropout")}
    labels = test.max_state if test.pad_state is not None else test.max_state + 1
    other = AutoregressiveModel(labels, test.x.shape[1], seed=seed, **sizes).to(model.device)
    other.fit(train.x, steps=steps, batch_size=batch_size)
    bits = other.bits_per_dim(x)
    held_out, seen = (_bytes(data) for data in (test, train))
    entries = int((test.x != test.pad_state).sum()) if test.pad_state is not None else test.x.numel()
    return {
        "xz": xz_bits(held_out, labels=entries),
        "xz_after_training_data": xz_bits(held_out, seen, entries),
        "autoregressive": float(bits),
        "autoregressive_error": bits.standard_error,
        "steps": steps,
    }


def _bytes(data: Dataset) -> bytes:
    """The data as text, or as bytes of labels, without padding, where they stand for nothing else."""
    if data.alphabet is not None:
        return "".join(data.alphabet.texts(data.x)).encode()
    x = data.x if data.pad_state is None else data.x[data.x != data.pad_state]
    return x.cpu().contiguous().to(torch.uint8 if data.max_state < 256 else torch.int32).numpy().tobytes()
