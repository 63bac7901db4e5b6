"""Volumes from models of slices, where it is known what they must be."""

import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch

import blackout as bo
from blackout.io import write_samples
from blackout.model import DiffusionModel
from blackout.sampling import Planes
from test_cli import status

TIMES = bo.ObservationTimes.survival(400, 12.0)
ALIKE = torch.stack([torch.zeros(1, 2, 2), torch.ones(1, 2, 2)]).long()
MASKED = bo.Absorbing(3)


def slices_of_a_model(process: bo.MarkovProcess = MASKED) -> DiffusionModel:
    x = torch.from_numpy(numpy.random.default_rng(0).binomial(1, 0.3, (64, 1, 8, 8)))
    return DiffusionModel.for_data(x, process, head="categorical", width=8, blocks=1)


def test_eight_voxels_are_alike_as_often_as_slices_can_tell() -> None:
    """Slices all 0 or all 1. The second voxel has no slice in common with the first in one case of seven, and is drawn
    afresh then; all later ones see one of the two, or both, through some slice."""
    planes = Planes(bo.ExactPosterior(MASKED, ALIKE), MASKED, torch.tensor([1.0, 1.0, 0.0]))
    drawn = bo.PosteriorBridge().sample(planes, MASKED, TIMES, (400, 2, 2, 2)).flatten(1)
    alike = (drawn == drawn[:, :1]).all(-1).double()
    # Of two voxels that are decided in one step, one in some hundred cubes, neither sees the other.
    assert abs(alike.mean() - 13 / 14) < 4 * (13 / 14 / 14 / 400) ** 0.5 + 0.02
    assert abs(drawn[alike > 0].double().mean() - 0.5) < 4 * 0.5 / 300**0.5  # fails once in 16,000 seeds


@pytest.mark.parametrize("weight", [0.5, 1.0])
def test_three_witnesses_and_the_voxel_itself(weight: float) -> None:
    """Each slice tilts the law by what it holds: the tilts add up, as far as they are believed; its own law is once.
    A factor for each state, the same for all voxels, is left open: it sets the mean."""
    process, prior = bo.Uniform(3), torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)

    class Tilted:
        def law(self, xt: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            own = prior * likelihood(xt, t)
            tilt = torch.stack([(xt == k).double().mean((1, 2, 3)) for k in range(3)], -1)
            joint = own * torch.exp(tilt.reshape(-1, 1, 1, 1, 3))
            return joint / joint.sum(-1, keepdim=True)

        def __call__(self, xt: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            raise AssertionError

    def likelihood(xt: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        states = torch.arange(3).expand(*xt.shape, 3)
        return torch.exp(process.log_prob(xt.unsqueeze(-1).expand_as(states), states, t))

    x = torch.from_numpy(numpy.random.default_rng(0).integers(0, 3, (2, 2, 4, 6)))
    t = torch.full((2,), 0.7, dtype=torch.float64)
    found = Planes(Tilted(), process, prior, weight=weight, batch_size=3).law(x, t)
    one = torch.nn.functional.one_hot(x, 3).double()
    tilts = sum(one.mean([d for d in (1, 2, 3) if d != across], keepdim=True) for across in (1, 2, 3))
    expected = prior * likelihood(x, t) * torch.exp(weight * tilts)
    factors = (found / expected)[..., 1:] / (found / expected)[..., :1]
    assert torch.allclose(factors, factors[:, :1, :1, :1], rtol=1e-9)


def test_a_rare_state_is_not_made_rarer_by_three_slices_that_agree() -> None:
    """Slices say 0.25 or 0.05, by the line: believed as independent, they would leave less of state 1."""
    masked = torch.full((2, 16, 16, 16), 2)
    masked[:, :4] = 0  # known: nothing is to be moved there

    class Agreed:
        def law(self, xt: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            sure = xt != 2
            p = torch.where(sure, 0.0, 0.25).double()
            p[:, :, ::2] = torch.where(sure[:, :, ::2], 0.0, 0.05)
            return torch.stack([1 - p, p, torch.zeros_like(p)], -1)

        def __call__(self, xt: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            raise AssertionError

    planes = Planes(Agreed(), MASKED, torch.tensor([0.8, 0.2, 0.0]), weight=1.0)
    law, slices = planes.law(masked, torch.ones(2)), [planes._slices(masked, torch.ones(2), k) for k in (1, 2, 3)]
    assert torch.equal(law[:, :4, ..., 0], torch.ones(2, 4, 16, 16, dtype=torch.float64))
    wanted = float(sum(part[:, 4:, ..., 1].mean() for part in slices) / 3)
    assert float(law[:, 4:, ..., 1].mean()) == pytest.approx(wanted, abs=0.005)
    assert float(law[:, 4:, ..., 1].std()) > float(slices[0][:, 4:, ..., 1].std())  # and it is surer than one slice


@pytest.mark.parametrize("process", [bo.PureDeath(1), bo.Uniform(2), MASKED], ids=repr)
def test_independent_voxels_have_the_law_of_the_data(process: bo.MarkovProcess) -> None:
    volumes = slices_of_a_model(process).sample_volume(2, 12, size=(4, 16, 8))
    assert volumes.shape == (2, 4, 16, 8)
    assert abs(float(volumes.double().mean()) - 0.3) < 0.08


def test_a_volume_depends_on_its_number_alone_and_is_written(tmp_path: Path) -> None:
    model = slices_of_a_model()
    whole = model.sample_volume(3, 6, seed=1)
    assert whole.shape == (3, 8, 8, 8)
    assert torch.equal(model.sample_volume(1, 6, seed=1, start_index=2, batch_size=5), whole[2:])
    out = write_samples(model, tmp_path / "a.npz", 3, num_steps=6, seed=1, volume=8)
    with numpy.load(out) as file:
        assert numpy.array_equal(file["x"], whole.numpy())


@pytest.mark.parametrize(
    ("size", "reason"),
    [(7, "multiples of 2, got 7"), ((8, 8), r"got \(8, 8\)"), (0, "size"), ((8, 8, -2), "size"), ("ab", "size")],
)
def test_sides_that_cannot_be_are_refused(size: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        slices_of_a_model().sample_volume(1, 2, size=size)


def test_volumes_by_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = slices_of_a_model()
    model.save("model")
    words = ["sample", "model", "--volume", "8", "--num", "2", "--steps", "4"]
    assert status(words, monkeypatch) == 0
    assert capsys.readouterr().out == "2 samples: volumes.npz\n"
    with numpy.load("volumes.npz") as file:
        assert numpy.array_equal(file["x"], model.sample_volume(2, 4).numpy())
    assert status([*words, "--walk", "w.png"], monkeypatch) == 2
    assert status([*words, "--out", "grid.png"], monkeypatch) == 2
    assert "to a file .npz" in capsys.readouterr().err


def test_the_example_measures_how_far_slices_are_believed(tmp_path: Path) -> None:
    """A new model says nothing but the marginal law, so all columns are its cross-entropy with the cubes."""
    slices_of_a_model().save(tmp_path / "model")
    voxels = numpy.random.default_rng(0).binomial(1, 0.3, (180, 40, 40)).astype(numpy.uint8)
    numpy.savez_compressed(tmp_path / "bentheimer.npz", voxels=voxels)
    example = Path(__file__).parents[1] / "examples" / "three_slices.py"
    words = [sys.executable, str(example), str(tmp_path / "model"), str(tmp_path)]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(printed) == 6
    found = numpy.array([[float(cell) for cell in line.split()[1:]] for line in printed[1:]])
    assert numpy.allclose(found, 0.611, atol=0.02)  # the entropy of 0.3


def test_what_volumes_cannot_have_is_refused(tmp_path: Path) -> None:
    colours = torch.zeros(8, 3, 8, 8, dtype=torch.long)
    with pytest.raises(ValueError, match="a model of slices"):
        DiffusionModel.for_data(colours, bo.PureDeath(3), width=8, blocks=1).sample_volume(1, 2)
    model = slices_of_a_model()
    x = torch.arange(64).reshape(1, 8, 8) % 2
    with pytest.raises(ValueError, match="known is not for volumes"):
        write_samples(model, tmp_path / "a.npz", 1, volume=8, known=x, mask=x == 0)
    with pytest.raises(ValueError, match=r"to a file \.npz"):
        write_samples(model, tmp_path / "a.png", 1, volume=8)
    with pytest.raises(ValueError, match="by the sampler 'posterior'"):
        write_samples(model, tmp_path / "a.npz", 1, volume=8, sampler=bo.TauLeaping())
    means = DiffusionModel.for_data(colours[:, :1], bo.PureDeath(3), width=8, blocks=1)
    with pytest.raises(ValueError, match="whose head gives a law over X_0"):
        means.sample_volume(1, 2)
    assert not list(tmp_path.iterdir())
