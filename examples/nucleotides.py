"""Bits per base of a chloroplast genome: masking, uniform redrawing and HKY85, beside Markov chains and xz.

`python examples/nucleotides.py` takes some minutes on one CPU core; `--steps 20 --seeds 1` shows that it runs.
"""

import argparse
import statistics

import torch

import blackout as bo
from blackout.data import open_dataset
from blackout.evaluation import xz_bits

LENGTH = 64
KAPPA = 2.0  # transitions are twice as likely as transversions


def processes(x: torch.Tensor) -> dict[str, bo.MarkovProcess]:
    """Three processes for bases x; HKY85 ends in their frequencies."""
    frequencies = torch.bincount(x.flatten().long(), minlength=4).tolist()
    return {"masking": bo.Absorbing(5), "uniform": bo.Uniform(4), "HKY85": bo.substitution_model(KAPPA, frequencies)}


def markov_bits(train: torch.Tensor, test: torch.Tensor, order: int) -> float:
    """Bits per base of test, (n, length), under a Markov chain with counts of train; first bases have less context."""
    bits = torch.zeros(test.shape, dtype=torch.float64)
    for k in range(order + 1):
        powers = 4 ** torch.arange(k, -1, -1)
        counts = torch.ones(4 ** (k + 1), dtype=torch.float64)  # each base has been seen once in each context
        counts += torch.bincount((train.long().unfold(1, k + 1, 1) * powers).sum(-1).flatten(), minlength=len(counts))
        probs = (counts.reshape(-1, 4) / counts.reshape(-1, 4).sum(1, keepdim=True)).flatten()
        bits[:, k:] = -torch.log2(probs[(test.long().unfold(1, k + 1, 1) * powers).sum(-1)])
    return float(bits.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300, help="training steps of each model")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each model")
    options = parser.parse_args()
    train, test = (open_dataset("chloroplast", split, length=LENGTH) for split in ("train", "test"))
    print(f"{len(train)} sequences of {LENGTH} bases for training, {len(test)} held out; bits per base of the latter")
    for name, process in processes(train.x).items():
        bits = []
        for seed in range(options.seeds):
            model = bo.DiffusionModel.for_data(train.x, process, head="sequence", width=32, blocks=2, seed=seed)
            warmup = min(100, options.steps // 10)
            model.fit(train.x, steps=options.steps, batch_size=32, learning_rate=2e-3, warmup=warmup, ema=0.99,
                      lr_schedule="cosine", seed=seed, progress=False)  # fmt: skip
            bits.append(float(model.bits_per_dim(test.x, num_times=32)))
        spread = f" ± {statistics.stdev(bits):.3f}" if len(bits) > 1 else ""
        print(f"{name:12} {statistics.fmean(bits):.3f}{spread}", flush=True)
    for order in (0, 1, 2, 3, 4, 5):
        print(f"order {order:<6} {markov_bits(train.x, test.x, order):.3f}")
    assert train.alphabet is not None
    texts = ["".join(train.alphabet.texts(part.x)).encode() for part in (train, test)]
    print(f"{'xz -9e':12} {xz_bits(texts[1], texts[0]):.3f} after the training sequences")


if __name__ == "__main__":
    main()
