"""The training loop: its estimates, its steps, and that interrupted, shared and repeated runs agree."""

import filecmp
import json
import math
import os
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import processes
from blackout.likelihood import evidence_bound
from blackout.model import DiffusionModel
from blackout.network import BoundedLogitHead, Predictor
from blackout.process import PureDeath, Schedule
from blackout.times import ObservationTimes
from blackout.training.checkpoints import Checkpoint, RunFolder
from blackout.training.loop import Diverged, Report, Trainer
from small_runs import BASE, IMAGES, model_of, pixels, trainer


def curve(run: Trainer, x: Tensor = IMAGES, labels: Tensor | None = None) -> list[Report]:
    reports: list[Report] = []
    run.run(x, labels, lambda report, _: reports.append(report))
    return reports


def losses(run: Trainer, x: Tensor = IMAGES) -> Tensor:
    return torch.tensor([report.loss for report in curve(run, x)])


def python(*arguments: object, timeout: float = 120, **variables: str) -> str:
    environment = {
        **os.environ,
        **variables,
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = processes.run(*arguments, env=environment, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_training_on_bernoulli_pixels_falls_to_their_entropy() -> None:
    x = pixels(512, 1, 8, 8)
    config = BASE.replace(steps=100, batch_size=16, learning_rate=5e-3, ema=0.95)
    model = model_of(config, x)
    model.predictor.head.mean.fill_(0.95)
    reports: list[Report] = []
    before = model.bits_per_dim(x[:32])
    model.train(config, x, listener=lambda report, _: reports.append(report))
    after = model.bits_per_dim(x[:32])
    q = float(x[:32].double().mean())
    entropy = -q * math.log2(q) - (1 - q) * math.log2(1 - q)
    assert before > 1.2 * entropy
    assert float(after) == pytest.approx(entropy, rel=0.05)
    assert sum(r.loss for r in reports[-20:]) / 20 < 0.8 * sum(r.loss for r in reports[:5]) / 5


@pytest.mark.parametrize("time_density", ["grid", "logistic"])
@pytest.mark.parametrize("stratified", [False, True])
def test_the_training_estimate_is_the_evidence_bound(time_density: str, stratified: bool) -> None:
    x = torch.tensor([[0, 1, 3], [2, 2, 0], [3, 0, 1], [1, 3, 3]])
    run = trainer(
        x=x, max_count=3, num_times=20_000, t_end=20.0, width=16, steps=300, batch_size=256, time_density=time_density,
        stratified=stratified, learning_rate=1e-30,
    )  # fmt: skip
    with torch.no_grad():
        for weight in run.predictor.network.last.parameters():
            weight += 0.5 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(2))
    bits = torch.tensor([report.bits_per_dim for report in curve(run, x)])
    bound = evidence_bound(run.predictor.posterior, run.predictor.process, x, method="exact", num_times=400)
    exact = float(bound.mean() / (3 * math.log(2)))
    error = float(bits.std() / math.sqrt(len(bits)))
    assert error < 0.02 * exact
    assert float(bits.mean()) == pytest.approx(exact, abs=4 * error + 2e-3 * exact)


@pytest.mark.parametrize("time_density", ["grid", "logistic"])
def test_stratified_times_fall_one_into_each_stratum(time_density: str) -> None:
    run = trainer(time_density=time_density, num_times=16_000, time_loc=0.5, time_scale=2.0)
    _, t, _ = run.batches.times(16, torch.Generator().manual_seed(0))
    on_grid = torch.searchsorted(run.batches.grid.values, t * (1 - 1e-9)).double() / len(run.batches.grid)
    place = on_grid if time_density == "grid" else torch.sigmoid((-torch.log(torch.expm1(t)) - 0.5) / 2.0)
    assert (place * 16).floor().tolist() == list(range(16))


def test_each_epoch_is_a_permutation_and_the_next_one_another() -> None:
    batches = trainer().batches
    epochs = torch.cat([batches.indices(20, step) for step in range(15)]).reshape(6, 20)
    assert all(sorted(epoch.tolist()) == list(range(20)) for epoch in epochs)
    assert len({tuple(epoch.tolist()) for epoch in epochs}) == 6


@pytest.mark.parametrize("ema_first", [False, True])
def test_the_average_follows_each_step_with_a_growing_memory(ema_first: bool) -> None:
    run, weights, averages = trainer(ema=0.3, ema_first=ema_first), [], []

    def note(report: Report, run: Trainer) -> None:
        weights.append(run.predictor.network.first.weight.detach().clone())
        averages.append(run.averaged.network.first.weight.detach().clone())

    expected = run.predictor.network.first.weight.detach().clone()
    before = expected
    run.run(IMAGES, listener=note)
    for step, weight in enumerate([before, *weights[:-1]] if ema_first else weights):
        decay = min(0.3, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * weight
        torch.testing.assert_close(averages[step], expected)
    assert not torch.equal(weights[-1], averages[-1])


def test_the_learning_rate_warms_up_and_decays_as_a_cosine() -> None:
    run, used, reported = trainer(steps=10, warmup=4, lr_schedule="cosine"), [], []

    def note(report: Report, run: Trainer) -> None:
        used.append(run.optimizer.param_groups[0]["lr"] / run.config.optimiser.learning_rate)
        reported.append(report.learning_rate / run.config.optimiser.learning_rate)

    run.run(IMAGES, listener=note)
    cosine = [0.5 * (1 + math.cos(math.pi * k / 6)) for k in range(6)]
    assert used == pytest.approx([0.25, 0.5, 0.75, 1.0, *cosine])
    assert reported == pytest.approx(used)


def test_the_loss_scale_multiplies_the_loss_but_not_the_bits_per_dimension() -> None:
    plain, scaled = (curve(trainer(loss="instantaneous", steps=1, loss_scale=scale))[0] for scale in (1.0, 0.25))
    assert scaled.loss == pytest.approx(0.25 * plain.loss)
    assert scaled.bits_per_dim == pytest.approx(plain.bits_per_dim)


def test_two_micro_batches_give_the_steps_of_one() -> None:
    torch.testing.assert_close(losses(trainer(accumulate=2)), losses(trainer()), rtol=1e-4, atol=1e-5)


def test_the_gradient_is_clipped_to_the_given_norm() -> None:
    def norm(limit: float) -> float:
        run = trainer(steps=1, grad_clip=limit)
        run.run(IMAGES)  # Adam's first moment after one step is a tenth of the gradient
        return 10 * math.sqrt(sum(float(slot["exp_avg"].square().sum()) for slot in run.optimizer.state.values()))

    assert norm(0.0) > 0.02
    assert norm(0.01) == pytest.approx(0.01, rel=1e-3)
    assert norm(100.0) == pytest.approx(norm(0.0), rel=1e-6)


def test_the_seed_alone_decides_and_the_global_random_state_is_left_alone() -> None:
    state = torch.random.get_rng_state()
    first = losses(trainer(dropout=0.3))
    untouched = torch.equal(state, torch.random.get_rng_state())
    torch.manual_seed(99)
    assert torch.equal(losses(trainer(dropout=0.3)), first)
    assert not torch.equal(losses(trainer(dropout=0.3, seed=1)), first)
    assert untouched


def test_a_class_conditional_run_learns_its_classes() -> None:
    labels = torch.arange(64) % 2
    x = labels.reshape(-1, 1).expand(64, 6).contiguous()
    run = trainer(x=x, classes=2, class_conditional=True, width=16, steps=150, batch_size=32, learning_rate=1e-2)
    assert curve(run, x, labels)[-1].bits_per_dim < 0.2  # one bit for the class, in six pixels, is not needed
    dark, late = torch.zeros(2, 6, dtype=torch.long), torch.tensor(15.0)
    with torch.no_grad():
        y = run.predictor.eval().posterior(dark, late, torch.tensor([0, 1])).difference()
    assert float(y[0].max()) < 0.1
    assert float(y[1].min()) > 0.9


def test_a_nan_in_the_loss_names_the_step_and_the_last_good_checkpoint(tmp_path: Path) -> None:
    def poison(report: Report, run: Trainer) -> None:
        if report.step == 3:
            nn.init.constant_(run.predictor.network.first.weight, math.nan)

    with pytest.raises(Diverged, match=r"nan .* at step 4; .*step-000000002"):
        trainer(tmp_path, checkpoint_every=2).run(IMAGES, listener=poison)
    assert finite_checkpoints(tmp_path) == [2]


def test_a_learning_rate_that_explodes_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"at step \d; the last good checkpoint is .*step-00000000\d"):
        trainer(tmp_path, learning_rate=1e12, checkpoint_every=1).run(IMAGES)
    assert finite_checkpoints(tmp_path)


class Cliff(nn.Module):
    """Its output is finite and its gradient is not: the weight is NaN after one step."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, position: Tensor, label: Tensor | None = None) -> Tensor:
        return torch.sqrt(self.weight) * x


def test_weights_that_are_nan_after_a_finite_loss_are_never_saved(tmp_path: Path) -> None:
    head = BoundedLogitHead(torch.tensor([0.3]), torch.tensor([0.4]), 1)
    config = BASE.replace(checkpoint_every=1)
    run = Trainer(config, Predictor(Cliff(), head, PureDeath(1)), ObservationTimes.fisher(100), tmp_path)
    with pytest.raises(Diverged):
        run.run(IMAGES)
    assert finite_checkpoints(tmp_path) == []


def finite_checkpoints(folder: Path) -> list[int]:
    """Steps of the checkpoints; all their numbers are finite."""
    found = [Checkpoint(path) for path in RunFolder(folder).checkpoints()]
    for checkpoint in found:
        for group in ("weights", "averaged", "optimizer"):
            for name, value in checkpoint.tensors(group).items():
                assert bool(torch.isfinite(value).all()), f"{checkpoint.path.name}: {name} of {group}"
    return [checkpoint.step for checkpoint in found]


@pytest.mark.parametrize("wrong", [{"grad_clip": -1.0}, {"ema": 1.5}, {"steps": 0}, {"warmup": -1}, {"loss": "mse"}])
def test_invalid_values_are_rejected_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        BASE.replace(**wrong)


SCRIPT = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from small_runs import IMAGES, trainer
import torch
from test_training import curve
"""

RESUMED = """
run = trainer(Path(sys.argv[1]), dropout=0.3, flip=True, grad_clip=0.5)
assert [r.step for r in curve(run)] == [4, 5, 6]
"""

SHARED = """
run = trainer(accumulate=2)
reports = curve(run)
try:
    trainer(batch_size=7).run(IMAGES)
    rejected = ""
except ValueError as error:
    rejected = str(error)
try:
    trainer(Path(sys.argv[1]) / str(run.accelerator.process_index)).run(IMAGES)
    apart = ""
except ValueError as error:
    apart = str(error)
if run.accelerator.is_main_process:
    print(json.dumps([run.accelerator.num_processes, [r.loss for r in reports], rejected, apart]))
# Sleeping frees the GIL, which gloo needs to end the last collective: to destroy the group first is a deadlock.
time.sleep(0.5)
torch.distributed.destroy_process_group()
"""


def script(tmp_path: Path, body: str) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(tests=str(Path(__file__).parent)) + body)
    return path


def test_three_steps_a_new_process_and_three_more_are_six_steps_bit_for_bit(tmp_path: Path) -> None:
    changes = {"dropout": 0.3, "flip": True, "grad_clip": 0.5}
    trainer(tmp_path / "whole", **changes).run(IMAGES)
    trainer(tmp_path / "parts", **changes, steps=3).run(IMAGES)
    python(script(tmp_path, RESUMED), tmp_path / "parts")
    for group in ("weights", "averaged", "optimizer"):
        whole, parts = (
            tmp_path / name / "checkpoints" / "step-000000006" / f"{group}.safetensors" for name in ("whole", "parts")
        )
        assert filecmp.cmp(whole, parts, shallow=False), group  # pytest would take minutes to show two such bytes


def test_two_processes_give_the_loss_curve_of_one_and_reject_uneven_batches(tmp_path: Path) -> None:
    trainer(tmp_path / "0", steps=4).run(IMAGES)
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    with processes.programs(tmp_path, {"python": []}):  # which torchrun starts
        out = python(*launch, script(tmp_path, SHARED), tmp_path, PYTHON_EXEC=str(tmp_path / "python"))
    number, shared, rejected, apart = json.loads(out.splitlines()[-1])
    assert number == 2
    torch.testing.assert_close(torch.tensor(shared), losses(trainer(accumulate=2)), rtol=1e-4, atol=1e-5)
    assert "batch_size" in rejected
    assert apart == "processes found checkpoints of steps [4, 0]: give all of them one and the same folder"


@pytest.mark.parametrize(
    ("time_density", "loss", "head"),
    [
        ("grid", "instantaneous", "softplus"),
        ("grid", "finite_time", "bounded-logit"),
        ("grid", "likelihood", "bounded-logit"),
        ("logistic", "likelihood", "bounded-logit"),
        ("logistic", "likelihood", "rates"),
        ("logistic", "likelihood", "categorical"),
    ],
)
@pytest.mark.parametrize("schedule", [Schedule.constant(5.0), Schedule.constant(0.2), Schedule.linear(0.1, 2.0)])
def test_on_another_clock_pure_death_is_learnt_as_on_its_own(
    time_density: str, loss: str, head: str, schedule: Schedule
) -> None:
    x = (torch.rand(64, 6, generator=torch.Generator().manual_seed(0)) < torch.linspace(0.1, 0.9, 6)).long()
    found = []
    for clock in (None, schedule):
        model = DiffusionModel.for_data(x, PureDeath(1, schedule=clock), head=head, width=8, blocks=1)
        reports: list[Report] = []
        new = model.bits_of_each(x, num_times=8)
        model.fit(
            x, steps=12, batch_size=32, log_every=4, time_density=time_density, loss=loss,
            listener=lambda report, _, seen=reports: seen.append(report),
        )  # fmt: skip
        seen = torch.tensor([[report.loss, report.bits_per_dim] for report in reports])
        found.append((new, seen, model.bits_of_each(x, num_times=8), model.sample(16, 10, seed=1).double()))
    for own, other in zip(*found, strict=True):
        torch.testing.assert_close(other, own, rtol=1e-4, atol=1e-4)
