"""Volumes from models of slices, where the distribution of volumes can be computed."""

import importlib
import sys
from pathlib import Path

import numpy
import pytest
import torch
from torch import Tensor

import blackout as bo
from blackout.io import write_samples
from blackout.model import DiffusionModel
from blackout.posterior import ListedPosterior
from blackout.volumes import SliceDenoiser, sample_volume
from test_cli import status

TIMES = bo.ObservationTimes.survival(200, 12.0)
ALIKE = torch.stack([torch.zeros(1, 2, 2), torch.ones(1, 2, 2)]).long()
MASKED = bo.Absorbing(3)


def model_of_slices(process: bo.MarkovProcess = MASKED) -> DiffusionModel:
    x = torch.from_numpy(numpy.random.default_rng(0).binomial(1, 0.3, (64, 1, 8, 8)))
    return DiffusionModel.for_data(x, process, head="categorical", width=8, blocks=1)


def test_eight_voxels_are_equal_as_often_as_slices_determine_them() -> None:
    """Slices are all 0 or all 1. In one case of seven the second voxel shares no slice with the first and is sampled
    independently; every later voxel shares a slice with one of the two, or with both."""
    slices = SliceDenoiser(bo.ExactPosterior(MASKED, ALIKE), MASKED, torch.tensor([1.0, 1.0, 0.0]))
    volumes = bo.PosteriorBridge().sample(slices, MASKED, TIMES, (250, 2, 2, 2)).flatten(1)
    equal = (volumes == volumes[:, :1]).all(-1).double()
    # The first two voxels are sampled in one step, independently of each other, in up to 4 % of the cubes.
    assert abs(equal.mean() - 13 / 14) < 4 * (13 / 14 / 14 / 250) ** 0.5 + 0.02
    assert abs(volumes[equal > 0].double().mean() - 0.5) < 4 * 0.5 / 200**0.5  # fails for one of 16,000 seeds


@pytest.mark.parametrize("weight", [0.5, 1.0])
def test_evidence_of_slice_weights_is_multiplied(weight: float) -> None:
    """Each slice multiplies the voxel's own posterior by a factor; the logarithms add up, times the weight.

    One factor for each state, the same for all voxels, sets the mean and is not tested here.
    """
    process, prior = bo.Uniform(3), torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)

    def likelihood(xt: Tensor, t: Tensor) -> Tensor:
        states = torch.arange(3).expand(*xt.shape, 3)
        return torch.exp(process.log_prob(xt.unsqueeze(-1).expand_as(states), states, t))

    def denoise(xt: Tensor, t: Tensor) -> ListedPosterior:
        """The voxel's own posterior, tilted towards the states that are frequent in the slice."""
        tilt = torch.stack([(xt == k).double().mean((1, 2, 3)) for k in range(3)], -1)
        joint = prior * likelihood(xt, t) * torch.exp(tilt.reshape(-1, 1, 1, 1, 3))
        return ListedPosterior(process, xt, t, joint / joint.sum(-1, keepdim=True))

    x = torch.from_numpy(numpy.random.default_rng(0).integers(0, 3, (2, 2, 4, 6)))
    t = torch.full((2,), 0.7, dtype=torch.float64)
    found = SliceDenoiser(denoise, process, prior, weight=weight, batch_size=3)(x, t).probs()
    one = torch.nn.functional.one_hot(x, 3).double()
    tilts = sum(one.mean([d for d in (1, 2, 3) if d != across], keepdim=True) for across in (1, 2, 3))
    expected = prior * likelihood(x, t) * torch.exp(weight * tilts)
    factors = (found / expected)[..., 1:] / (found / expected)[..., :1]
    assert torch.allclose(factors, factors[:, :1, :1, :1], rtol=1e-9)


def test_mean_of_a_rare_state_is_that_of_the_slices() -> None:
    """Slices give 0.25 or 0.05, by the row: multiplied as independent evidence they would lower the mean of 1."""
    masked = torch.full((2, 16, 16, 16), 2)
    masked[:, :4] = 0  # observed: these voxels must not change

    def denoise(xt: Tensor, t: Tensor) -> ListedPosterior:
        sure = xt != 2
        p = torch.where(sure, 0.0, 0.25).double()
        p[:, :, ::2] = torch.where(sure[:, :, ::2], 0.0, 0.05)
        return ListedPosterior(MASKED, xt, t, torch.stack([1 - p, p, torch.zeros_like(p)], -1))

    volumes = SliceDenoiser(denoise, MASKED, torch.tensor([0.8, 0.2, 0.0]), weight=1.0)
    t = torch.ones(2, dtype=torch.float64)
    probs, slices = volumes(masked, t).probs(), [volumes.slices(masked, t, across) for across in (1, 2, 3)]
    assert torch.equal(probs[:, :4, ..., 0], torch.ones(2, 4, 16, 16, dtype=torch.float64))
    expected = float(sum(part[:, 4:, ..., 1].mean() for part in slices) / 3)
    assert float(probs[:, 4:, ..., 1].mean()) == pytest.approx(expected, abs=0.005)
    assert float(probs[:, 4:, ..., 1].std()) > float(slices[0][:, 4:, ..., 1].std())  # more certain than one slice


@pytest.mark.parametrize("process", [bo.PureDeath(1), bo.Uniform(2), MASKED], ids=repr)
def test_independent_voxels_have_the_distribution_of_the_data(process: bo.MarkovProcess) -> None:
    volumes = sample_volume(model_of_slices(process), 2, 12, size=(4, 16, 8))
    assert volumes.shape == (2, 4, 16, 8)
    assert abs(float(volumes.double().mean()) - 0.3) < 0.08


def test_volume_depends_on_seed_and_index_alone_and_is_written(tmp_path: Path) -> None:
    model = model_of_slices()
    volumes = sample_volume(model, 3, 6, seed=1)
    assert volumes.shape == (3, 8, 8, 8)
    assert torch.equal(sample_volume(model, 1, 6, seed=1, start_index=2, batch_size=5), volumes[2:])
    out = write_samples(model, tmp_path / "a.npz", 3, num_steps=6, seed=1, volume=8)
    with numpy.load(out) as file:
        assert numpy.array_equal(file["x"], volumes.numpy())


@pytest.mark.parametrize(
    ("size", "message"),
    [(7, "multiples of 2, got 7"), ((8, 8), r"got \(8, 8\)"), (0, "size"), ((8, 8, -2), "size"), ("ab", "size")],
)
def test_invalid_sizes_are_rejected(size: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sample_volume(model_of_slices(), 1, 2, size=size)


def test_volumes_by_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = model_of_slices()
    model.save("model")
    command = ["sample", "model", "--volume", "8", "--num", "2", "--steps", "4"]
    assert status(command, monkeypatch) == 0
    assert capsys.readouterr().out == "2 samples: volumes.npz\n"
    with numpy.load("volumes.npz") as file:
        assert numpy.array_equal(file["x"], sample_volume(model, 2, 4).numpy())
    assert status([*command, "--trajectory", "steps.png"], monkeypatch) == 2
    assert status([*command, "--out", "grid.png"], monkeypatch) == 2
    assert "out must end in .npz for volumes" in capsys.readouterr().err


def test_example_prints_the_entropy_for_an_untrained_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An untrained model gives the marginal distribution, so all columns are its cross-entropy with the cubes."""
    model_of_slices().save(tmp_path / "model")
    voxels = numpy.random.default_rng(0).binomial(1, 0.3, (180, 40, 40)).astype(numpy.uint8)
    numpy.savez_compressed(tmp_path / "bentheimer.npz", voxels=voxels)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "examples"))
    example = importlib.import_module("slice_weights")
    for name, value in (("CUBES", 1), ("SHARES", (0.1, 0.6)), ("WEIGHTS", (0.5, 1.0))):
        monkeypatch.setattr(example, name, value)
    monkeypatch.setattr(sys, "argv", ["slice_weights.py", str(tmp_path / "model"), str(tmp_path)])
    example.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    found = numpy.array([[float(cell) for cell in line.split()[1:]] for line in lines[1:]])
    assert numpy.allclose(found, 0.611, atol=0.02)  # the entropy of 0.3


def test_invalid_options_of_volumes_are_rejected(tmp_path: Path) -> None:
    colours = torch.zeros(8, 3, 8, 8, dtype=torch.long)
    with pytest.raises(ValueError, match="a model of slices"):
        sample_volume(DiffusionModel.for_data(colours, bo.PureDeath(3), width=8, blocks=1), 1, 2)
    model = model_of_slices()
    x = torch.arange(64).reshape(1, 8, 8) % 2
    with pytest.raises(ValueError, match="observed cannot be used with volume"):
        write_samples(model, tmp_path / "a.npz", 1, volume=8, observed=x, mask=x == 0)
    with pytest.raises(ValueError, match=r"out must end in \.npz for volumes"):
        write_samples(model, tmp_path / "a.png", 1, volume=8)
    with pytest.raises(ValueError, match="volume needs the sampler 'posterior'"):
        write_samples(model, tmp_path / "a.npz", 1, volume=8, sampler=bo.TauLeaping())
    means = DiffusionModel.for_data(colours[:, :1], bo.PureDeath(3), width=8, blocks=1)
    with pytest.raises(ValueError, match="volumes need a head with a distribution over X_0"):
        sample_volume(means, 1, 2)
    assert not list(tmp_path.iterdir())
