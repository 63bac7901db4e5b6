"""Distillation: its gradient against an enumerated divergence, students against their teachers, runs that resume."""

import json
import math
from pathlib import Path

import anndata
import numpy
import pandas
import pytest
import torch
from scipy import sparse, special, stats
from torch import Tensor

import blackout as bo
from blackout.cells import distill_cells
from blackout.data import Dataset, SparseRows
from blackout.distillation import DistillConfig, Distiller
from blackout.distillation.loop import draw_bridge, draw_times
from blackout.distillation.run import new_student, student_times
from blackout.evaluation import EvalConfig, compare, evaluate, read_spec
from blackout.network.head import Observation
from blackout.posterior import call
from blackout.training.checkpoints import Checkpoint, RunFolder
from blackout.training.weights import read_tensors
from test_cli import status
from worlds import draw, frequencies, lattice, marginal, on_lattice, p_value, total_variation

PROCESS, T, U = bo.PureDeath(3), 2.0, 0.7
SURVIVAL = (math.exp(-U) - math.exp(-T)) / (1 - math.exp(-T))  # r of Eq. (10)


def enumerated(y: numpy.ndarray) -> numpy.ndarray:
    """The distribution of X_u on {0, ..., 3}^2 for draws y of X_0 - X_t, (noises, 2), each as likely, with X_t = 0."""
    total = numpy.zeros((4, 4))
    for row in y:
        each = []
        for value in row:
            low = int(numpy.floor(value))
            mass = [stats.binom.pmf(numpy.arange(4), n, SURVIVAL) for n in (low, low + 1)]
            each.append((low + 1 - value) * mass[0] + (value - low) * mass[1])
        total += numpy.outer(*each) / len(y)
    return total


def score(probs: numpy.ndarray) -> numpy.ndarray:
    """E[X_0 - X_u | X_u] of a marginal, (4, 4, 2): (x + 1) p(x + 1) / p(x) times (1 - e^-u) / e^-u, from Eq. (9)."""
    shifted = [numpy.concatenate([numpy.delete(probs, 0, axis), 0 * probs.take([0], axis)], axis) for axis in (0, 1)]
    places = numpy.meshgrid(*[numpy.arange(1, 5)] * 2, indexing="ij")
    return numpy.stack([n * p / probs for n, p in zip(places, shifted, strict=True)], -1) * math.expm1(U)


def test_gradient_is_that_of_the_divergence() -> None:
    """From ratios of probabilities, against a numerical derivative of KL(student ‖ teacher) of X_u by scipy."""
    y = numpy.array([[0.3, 1.6], [2.25, 0.8]])  # for two values of the noise
    data = numpy.random.default_rng(0).dirichlet(numpy.ones(16)).reshape(-1, 1)
    points = lattice(4, 2)
    teacher = marginal(PROCESS, points, torch.from_numpy(data[:, 0]), U).reshape(4, 4).numpy()

    def divergence(at: numpy.ndarray) -> float:
        probs = enumerated(at)
        return float(special.xlogy(probs, probs / teacher).sum())

    true = numpy.zeros_like(y)
    for index in numpy.ndindex(*y.shape):
        step = numpy.zeros_like(y)
        step[index] = 1e-5
        true[index] = (divergence(y + step) - divergence(y - step)) / 2e-5

    size = 200_000
    which = torch.arange(size) % 2
    drawn = torch.from_numpy(y)[which].float()
    u, t = (torch.full((size,), v, dtype=torch.float64) for v in (U, T))
    bridge = draw_bridge(PROCESS, torch.zeros(size, 2).long(), drawn, u, t, torch.Generator().manual_seed(0))
    place = tuple(bridge.xu.T.numpy())
    with numpy.errstate(divide="ignore", invalid="ignore"):
        log_ratio = numpy.log(score(enumerated(y))[place] / score(teacher)[place])
    weight = bridge.weight.numpy() / 2  # each value of the noise has half of the draws
    terms = SURVIVAL * numpy.where(weight > 0, log_ratio, 0.0) * weight
    for noise in range(2):
        estimate, error = (f(terms[noise::2], 0) for f in (numpy.mean, numpy.std))
        assert (abs(estimate - true[noise]) < 5 * error / math.sqrt(size / 2)).all()  # fails by chance: 2e-6
        assert (abs(true[noise]) > 20 * error / math.sqrt(size / 2)).all()  # and could be seen to be wrong


def updates(t: float, u: float, seed: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """The mean update of a student of one component on {0, ..., 5}, and the gradient of KL(q_u ‖ p_u): enumerated."""
    states, rng = numpy.arange(6), numpy.random.default_rng(seed)
    keep, r = numpy.exp([-t, -u]), (math.exp(-u) - math.exp(-t)) / (1 - math.exp(-t))
    data, alive = rng.dirichlet(numpy.ones(6)), [stats.binom.pmf(numpy.arange(n + 1), n, r) for n in range(7)]
    late, early = (data @ stats.binom.pmf(states, states[:, None], p) for p in keep)
    y = rng.uniform(0, 1, (6, 4)) * (5 - states)[:, None]  # for each state at t, four values of the noise

    def joint(y: numpy.ndarray) -> numpy.ndarray:
        """P(X_u, X_0) of the student."""
        probs = numpy.zeros((7, 7))
        for (x, _), value in numpy.ndenumerate(y):
            low = int(value)
            for n, share in ((low, low + 1 - value), (low + 1, value - low)):
                probs[x : x + n + 1, x + n] += late[x] / y.shape[1] * share * alive[n]
        return probs[:6]

    def divergence(y: numpy.ndarray) -> float:
        q = joint(y).sum(1)
        return float(special.xlogy(q, q / early).sum())

    probs = joint(y)
    own = (probs * (numpy.arange(7) - states[:, None])).sum(1) / probs.sum(1)
    true = numpy.append(states[1:] * early[1:] / early[:-1], 0) * math.expm1(u)
    ratio = numpy.append(numpy.log(own[:-1] / true[:-1]), 0.0)
    update, gradient = numpy.zeros((5, 4)), numpy.zeros((5, 4))
    for x, z in numpy.ndindex(update.shape):
        low = int(y[x, z])  # without the last unit
        update[x, z] = late[x] / 4 * r * alive[low] @ ratio[x : x + low + 1]
        step = numpy.zeros_like(y)
        step[x, z] = 1e-6
        gradient[x, z] = (divergence(y + step) - divergence(y - step)) / 2e-6
    return update, gradient


@pytest.mark.parametrize(("t", "u", "least"), [(6.0, 1.0, 0.999), (2.0, 0.7, 0.95), (0.5, 0.2, 0.9)])
def test_update_descends_the_divergence(t: float, u: float, least: float) -> None:
    """From states that are not black the update is no gradient, but its cosine with the gradient is positive."""
    for seed in range(5):
        update, gradient = updates(t, u, seed)
        cosine = (update * gradient).sum() / numpy.sqrt((update**2).sum() * (gradient**2).sum())
        assert cosine > least


def test_draws_are_unbiased_and_lie_on_the_bridge() -> None:
    y = torch.tensor([[0.3, 1.6]]).expand(100_000, 2)
    u, t = (torch.full((len(y),), v, dtype=torch.float64) for v in (U, T))
    bridge = draw_bridge(PROCESS, torch.zeros_like(y).long(), y, u, t, torch.Generator().manual_seed(1))
    assert torch.allclose(bridge.x0.double().mean(0), y[0].double(), atol=0.01)
    assert p_value(frequencies(bridge.xu, 4), torch.from_numpy(enumerated(y[:1].numpy()).ravel())) > 1e-4
    assert torch.allclose(bridge.weight.mean(0), torch.ones(2), atol=0.02)
    assert bool((bridge.xu <= bridge.x0).all())


@pytest.mark.parametrize("schedule", [None, lambda t: 1 + t])
def test_times_are_uniform_in_survival_within_their_step(schedule: object) -> None:
    process = bo.PureDeath(3, schedule=schedule)
    s, t = (torch.full((20_000,), v, dtype=torch.float64) for v in (0.2, 1.5))
    times = draw_times(process, s, t, torch.Generator().manual_seed(0))
    early, late, now = (torch.exp(-process.clock_time(v)) for v in (s, t, times.u))
    assert torch.allclose(times.lost, 1 - now)
    assert torch.allclose(times.length, early - late)
    assert stats.kstest(((now - late) / (early - late)).numpy(), "uniform").pvalue > 1e-4


def bumps() -> tuple[Tensor, Tensor]:
    """One component with two modes, on {0, ..., 7}."""
    weights = torch.tensor([0.02, 0.3, 0.1, 0.02, 0.02, 0.06, 0.4, 0.08], dtype=torch.float64)
    return torch.arange(8).unsqueeze(-1), weights


def untrained(x: Tensor, largest: int, width: int) -> bo.DiffusionModel:
    return bo.DiffusionModel.for_data(x, bo.PureDeath(largest), width=width, blocks=1)


def distilled(num_steps: int, steps: int, width: int = 32) -> tuple[float, float]:
    """Total variation from the data of a student of the exact posterior, and of the bridge at the same times."""
    points, weights = bumps()
    x, law = draw(points, weights, 20_000), on_lattice(points, weights, 8)
    model = untrained(x, 7, width)
    exact = bo.ExactPosterior(model.process, points, weights)
    settings = DistillConfig(
        num_steps=num_steps, steps=steps, batch_size=256, aux_updates=3, learning_rate=2e-3, aux_learning_rate=4e-3,
        ema=0.98, warmup=20,
    )  # fmt: skip
    student = new_student(model, settings)

    def teacher(xu: Tensor, u: Tensor, label: Tensor | None) -> Tensor:
        return call(exact, model.process, xu, u).difference()

    loop = Distiller(settings, settings.train_config(), student.predictor, model.predictor, teacher, student.times)
    loop.run(x)
    student = student.with_predictor(loop.averaged.eval())
    drawn = student.sample(20_000, seed=1, batch_size=20_000)
    bridge = bo.BinomialBridge().sample(exact, model.process, student.times, (20_000, 1), seed=1)
    found, plain = (total_variation(frequencies(v, 8) / 20_000, law) for v in (drawn, bridge))
    return found, plain


@pytest.mark.parametrize(("num_steps", "most"), [(1, 0.2), (2, 0.2)])
def test_student_is_closer_to_the_data_than_its_teacher_in_as_many_steps(num_steps: int, most: float) -> None:
    student, bridge = distilled(num_steps, 200)
    assert student < most < 2 * most < bridge


@pytest.mark.slow
def test_student_approaches_the_data_as_capacity_grows() -> None:
    """`pytest -m slow tests/test_distillation.py`: a minute. Measured: 0.204 and 0.064, the bridge 0.84."""
    narrow, wide = (distilled(2, 600, width)[0] for width in (4, 64))
    assert wide < 0.1 < narrow


IMAGES = (torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(1)) < 0.3).long()
TEACHERS = {
    "vectors": (torch.randint(0, 5, (64, 3), generator=torch.Generator().manual_seed(0)), 4),
    "images": (IMAGES, 1),
}


def teacher_of(kind: str) -> tuple[bo.DiffusionModel, Tensor]:
    x, largest = TEACHERS[kind]
    return untrained(x, largest, 8).fit(x, steps=2, batch_size=8), x


@pytest.mark.parametrize("kind", TEACHERS)
@pytest.mark.parametrize("head", ["softplus", "bounded-logit", "gamma-poisson"])
def test_student_without_noise_is_the_teacher(kind: str, head: str) -> None:
    x, largest = TEACHERS[kind]
    model = bo.DiffusionModel.for_data(x, bo.PureDeath(largest), head=head, width=8, blocks=1)
    model.fit(x, steps=2, batch_size=8)
    student = new_student(model, DistillConfig(num_steps=2)).predictor
    first = student.network.first.weight
    assert bool((first[:, -x.shape[1] :] != 0).all())
    with torch.no_grad():
        first[:, -x.shape[1] :] = 0
        seen = Observation(model.process, x[:4] // 2, torch.full((4,), 0.3), torch.randn(4, *x.shape[1:]))
        drawn = student.head.posterior(student(seen), seen).difference()
        assert torch.allclose(drawn, model.posterior(seen.xt, seen.t).difference())


@pytest.mark.parametrize("kind", TEACHERS)
def test_students_are_saved_loaded_and_sampled_like_other_models(kind: str, tmp_path: Path) -> None:
    model, x = teacher_of(kind)
    before = {name: weight.clone() for name, weight in model.predictor.state_dict().items()}
    student = bo.distill(model, x, num_steps=3, steps=2, batch_size=8, out=tmp_path / "run")
    assert all(torch.equal(weight, before[name]) for name, weight in model.predictor.state_dict().items())
    samples = student.sample(6, seed=3)
    assert samples.shape == (6, *x.shape[1:])
    assert int(samples.max()) <= model.max_state
    assert len(student.times) == 3
    for again in (bo.load(student.save(tmp_path / "saved")), bo.load(tmp_path / "run")):
        assert torch.equal(again.sample(6, seed=3), samples)
        assert torch.equal(again.sample(2, seed=3, start_index=4, batch_size=1), samples[4:])
    mask = torch.arange(x.shape[-1]).expand(x.shape[1:]) > 0
    assert bool((student.sample(2, observed=x[0], mask=mask) == x[0])[:, mask].all())


def test_conditional_teachers_have_conditional_students() -> None:
    x, labels = TEACHERS["vectors"][0], torch.arange(64) % 2
    model = bo.DiffusionModel.for_data(x, bo.PureDeath(4), num_classes=2, width=8, blocks=1)
    model.fit(x, labels, steps=2, batch_size=8)
    student = bo.distill(model, x, labels, num_steps=2, steps=2, batch_size=8)
    assert student.sample(3, label=1).shape == (3, 3)
    with pytest.raises(ValueError, match="labels are needed"):
        bo.distill(model, x, num_steps=2, steps=2)


def test_counts_without_a_bound_in_sparse_rows() -> None:
    """As the models of cells have them: gamma-Poisson head and a covariate."""
    counts = numpy.random.default_rng(0).poisson(2.0, (64, 6))
    cells = bo.CountModel(width=8, blocks=1, library="conditioned").fit(counts, steps=2)
    labels = torch.from_numpy(numpy.log(counts.sum(1, keepdims=True))).float()
    student = bo.distill(cells.model, SparseRows(sparse.csr_matrix(counts)), labels, num_steps=2, steps=2, batch_size=8)
    assert student.sample(5, label=labels[:5]).shape == (5, 6)


def test_cells_of_given_size_from_a_student() -> None:
    """The library size scales the draws of the student, as it scales the means of the teacher."""
    counts = numpy.random.default_rng(0).poisson(80.0, (64, 6))
    teacher = bo.CountModel(width=8, blocks=1, library="conditioned").fit(counts, steps=2)
    student = distill_cells(teacher, counts, num_steps=4, steps=2, batch_size=8)
    assert (student.genes, student.model.default_sampler(), len(student.model.times)) == (teacher.genes, "student", 4)
    totals = numpy.asarray(student.sample(200, library=500, seed=0).X.sum(1)).ravel()
    assert abs(totals.mean() - 500) < 5 * totals.std() / math.sqrt(200) + 5
    for unknown in (lambda: student.bits_per_dim(counts), lambda: student.impute(counts, mask=counts > 80)):
        with pytest.raises(ValueError, match="a distilled model gives draws of X_0"):
            unknown()


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_no_labels_are_dropped_for_a_teacher_that_needs_them(dropout: float, tmp_path: Path) -> None:
    counts, labels = numpy.random.default_rng(0).poisson(4.0, (64, 6)), pandas.DataFrame({"kind": ["a", "b"] * 32})
    cells = anndata.AnnData(counts.astype(numpy.float32), labels.set_axis([f"cell {k}" for k in range(64)]))
    teacher = bo.CountModel(labels="kind", label_dropout=dropout, width=8, blocks=1).fit(cells, steps=2)
    distill_cells(teacher, cells, num_steps=2, steps=2, batch_size=8, out=tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["network"]["label_dropout"] == (0.1 if dropout else 0.0)
    assert set(bo.CountModel.load(tmp_path / "run").sample(4, label="b").obs["kind"]) == {"b"}


def test_resumed_run_is_the_same_bit_for_bit(tmp_path: Path) -> None:
    model, x = teacher_of("vectors")
    options = {"num_steps": 2, "batch_size": 8, "aux_updates": 2, "checkpoint_every": 3, "log_every": 1}
    bo.distill(model, x, steps=6, out=tmp_path / "whole", **options)

    class Interrupt(Exception):
        pass

    def interrupt(report: object, loop: Distiller) -> None:
        if loop.step == 5:
            raise Interrupt

    with pytest.raises(Interrupt):
        bo.distill(model, x, steps=6, out=tmp_path / "parts", listener=interrupt, **options)
    assert Checkpoint(RunFolder(tmp_path / "parts").checkpoints()[-1]).step == 3
    bo.distill(model, x, steps=6, out=tmp_path / "parts", **options)
    one, two = (RunFolder(tmp_path / name).checkpoints()[-1] for name in ("whole", "parts"))
    assert sorted(path.name for path in one.iterdir()) == sorted(path.name for path in two.iterdir())
    groups = sorted(path.name for path in one.glob("*.safetensors"))
    assert groups == [f"{name}.safetensors" for name in ("auxiliary-optimizer", "auxiliary-weights", "averaged", "optimizer", "weights")]  # fmt: skip # noqa: E501
    for name in groups:
        a, b = read_tensors(one / name), read_tensors(two / name)
        assert all(torch.equal(a[key], b[key]) for key in a)
    lines = (tmp_path / "parts" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("name", ["cifar10", "mnist-binary"])
def test_times_of_a_student_waste_no_step(name: str) -> None:
    model = bo.load(name)
    times = student_times(model, 8)
    assert len(times) == 8
    assert times.t_end == model.times.t_end
    assert float(times.values[0]) > 0.05  # the first time of a teacher's eight steps is 3e-7
    assert torch.equal(times.values, model.sampling_times(9, "length").values[1:])  # not those fitted to the teacher
    assert student_times(model, 1).values.tolist() == [model.times.t_end]


def test_what_cannot_be_distilled_is_rejected(tmp_path: Path) -> None:
    model, x = teacher_of("vectors")
    with pytest.raises(ValueError, match="predicts the mean"):
        bo.distill(bo.DiffusionModel.for_data(x, bo.Uniform(5), width=8), x)
    indexed = bo.DiffusionModel.for_data(x, bo.PureDeath(4), width=8, time_input="index")
    with pytest.raises(ValueError, match="time_input='index'"):
        bo.distill(indexed, x)
    with pytest.raises(ValueError, match="num_steps must be"):
        bo.distill(model, x, num_steps=0)
    with pytest.raises(ValueError, match="as many as num_steps, got 3"):
        bo.distill(model, x, num_steps=2, times=bo.ObservationTimes.fisher(3))
    with pytest.raises(ValueError, match="blackout distill"):
        bo.DiffusionModel.for_data(x, bo.PureDeath(4), head="student")
    student = bo.distill(model, x, num_steps=2, steps=1, batch_size=8, out=tmp_path)
    with pytest.raises(ValueError, match=r"num_steps \(2 there, 3 here\)"):
        bo.distill(model, x, num_steps=3, steps=1, batch_size=8, out=tmp_path)
    with pytest.raises(ValueError, match="'student' is for distilled models"):
        student.sample(2, sampler="bridge")
    with pytest.raises(ValueError, match="'student' is for distilled models"):
        model.sample(2, sampler="student")
    with pytest.raises(ValueError, match="corrector_steps must be 0"):
        student.sample(2, sampler=bo.StudentBridge(corrector_steps=1))
    with pytest.raises(ValueError, match="use its teacher"):
        student.bits_per_dim(x[:4])


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    numpy.save("x.npy", IMAGES.numpy().astype(numpy.uint8))
    model, _ = teacher_of("images")
    model.save("teacher")
    command = ["distill", "teacher", "--data", "x.npy", "--steps", "2", "--batch-size", "4", "--aux-updates", "1"]
    assert status([*command, "--updates", "2"], monkeypatch) == 0
    assert "runs/teacher-2: new run" in capsys.readouterr().out
    assert status([*command, "--updates", "3"], monkeypatch) == 0
    assert "resumes from step-000000002" in capsys.readouterr().out
    assert status(["sample", "runs/teacher-2", "--num", "2", "--out", "s.npz"], monkeypatch) == 0
    assert numpy.load("s.npz")["x"].shape == (2, 1, 8, 8)
    assert status([*command, "--aux-updates", "2"], monkeypatch) == 2
    assert "aux_updates (1 there, 2 here)" in capsys.readouterr().err
    assert status(["distill", "nothing", "--data", "x.npy"], monkeypatch) == 2


def test_a_student_is_evaluated_by_its_samples_alone(tmp_path: Path) -> None:
    """It has no bound; in a comparison its row has no bits, with one seed and with several."""
    model, x = teacher_of("vectors")
    student = bo.distill(model, x, num_steps=2, steps=1, batch_size=8)
    report = evaluate(student, tmp_path, Dataset(x=x, name="x", max_state=4), config=EvalConfig(num_samples=60))
    assert report["bits_per_dim"] == {"test": None, "train": None}
    assert [report["curves"][name] for name in ("bits_by_time", "bits_histogram")] == [None, None]
    assert (report["sampler_bits_per_dim"], report["sampling"]["sampler"]) == (None, "student")
    page = (tmp_path / "report.html").read_text()
    assert "Samples per second" in page
    assert "Bits per dimension" not in page


def test_a_student_is_compared_with_its_teacher_at_its_own_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, x = teacher_of("vectors")
    numpy.save("x.npy", x.numpy().astype(numpy.uint8))
    model.save("teacher")
    bo.distill(model, x, num_steps=2, steps=1, batch_size=8).save("student")
    Path("few.toml").write_text("""
        data = "x.npy"
        seeds = [0, 1]
        model = [{source = "teacher"}, {source = "student"}]
        [sample]
        num_steps = [2, 4]
        num_samples = 60
    """)
    rows = compare(read_spec("few.toml"), "out", torch.device("cpu"))["rows"]
    assert [(row["model"], row["num_steps"], row["bits_per_dim"] is None) for row in rows] == [
        ("teacher", 2, False), ("teacher", 4, False), ("student", 2, True),
    ]  # fmt: skip
    assert "| student | – |" in Path("out/comparison.md").read_text()
    with pytest.raises(ValueError, match="student: num_steps must be 2 for this distilled model"):
        compare(read_spec("few.toml", overrides=["sample.num_steps=4"]), "other", torch.device("cpu"))


def test_command_ignores_labels_that_the_teacher_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As those of the data sets of the pretrained models, which have no classes."""
    monkeypatch.chdir(tmp_path)
    numpy.savez("x.npz", x=IMAGES.numpy().astype(numpy.uint8), labels=numpy.arange(40) % 3)
    teacher_of("images")[0].save("teacher")
    command = ["distill", "teacher", "--data", "x.npz", "--steps", "2", "--updates", "1", "--batch-size", "4"]
    assert status([*command, "--aux-updates", "1"], monkeypatch) == 0, capsys.readouterr().err


def test_a_batch_that_does_not_fit_into_memory_is_rejected_before_the_work() -> None:
    x = torch.randint(0, 4, (8, 3))
    with pytest.raises(ValueError, match=r"batches of 1,099,511,627,776 data points .* of memory, but .* are free"):
        bo.distill(untrained(x, 3, 8), x, num_steps=2, steps=1, batch_size=2**40)
