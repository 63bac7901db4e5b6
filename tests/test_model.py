"""DiffusionModel: from an array to samples, bits and files, and back."""

import copy
import hashlib
import json
import math
import pickle
import resource
from pathlib import Path

import pytest
import torch
from torch import Tensor

import blackout as bo
from blackout.bits import BitsPerDim
from blackout.files import file_digest, read_json, write_json
from blackout.io import load, pretrained
from blackout.likelihood import InfiniteBoundWarning
from blackout.model import DiffusionModel
from blackout.network import MLP, BoundedLogitHead, Head, MLPConfig, NCSNpp, SoftplusHead, UNetConfig
from blackout.network.build import build_network
from blackout.network.mean_heads import data_statistics
from blackout.process import PureDeath, Uniform
from blackout.sampling import BinomialBridge, TauLeaping
from blackout.times import ObservationTimes
from blackout.training.loop import Diverged

TIMES = ObservationTimes.fisher(50)


def pixels(num: int = 32, q: float = 0.3, seed: int = 1) -> Tensor:
    return (torch.rand(num, 1, 8, 8, generator=torch.Generator().manual_seed(seed)) < q).long()


def counts(num: int = 64) -> Tensor:
    return torch.randint(0, 8, (num, 5), generator=torch.Generator().manual_seed(1))


def shaken(model: DiffusionModel, size: float = 0.2) -> DiffusionModel:
    """The model with weights that do something."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.predictor.parameters():
            weight += size * torch.randn(weight.shape, generator=generator)
    return model


def images(**more: object) -> DiffusionModel:
    return DiffusionModel.for_data(pixels(), PureDeath(1), TIMES, width=8, blocks=1, **more)


def vectors(head: Head | None = None, **more: object) -> DiffusionModel:
    head = head or BoundedLogitHead(*data_statistics(counts()), 7)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = MLP(MLPConfig(**{"features": 5, "width": 16, "blocks": 1, **more}))
    return DiffusionModel(PureDeath(7), TIMES, network, head, shape=(network.settings.features,))


def differences(model: DiffusionModel) -> Tensor:
    """E[X_0 - X_t | X_t] at many times."""
    assert model.shape is not None
    largest = model.process.max_count + 1
    xt = torch.randint(0, largest, (50, *model.shape), generator=torch.Generator().manual_seed(3))
    return model.posterior(xt, TIMES.values).difference()


def test_precision() -> None:
    x = torch.randint(0, 5, (8, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    model = DiffusionModel.for_data(x, PureDeath(max_count=4), width=16, blocks=1).fit(x, steps=2, batch_size=8)
    full = model.posterior(x, torch.tensor(0.5)).difference()
    half = model.to("cpu", "bfloat16").posterior(x, torch.tensor(0.5)).difference()
    assert 0 < float((half - full).abs().max()) < 0.05
    assert torch.equal(model.to("cpu").posterior(x, torch.tensor(0.5)).difference(), full)
    with pytest.raises(ValueError, match="precision must be one of 'auto', 'float32', 'bfloat16', got 'half'"):
        model.to("cpu", "half")


def test_vectors_get_an_mlp_and_images_ncsnpp() -> None:
    def build(*shape: int) -> object:
        head = SoftplusHead(torch.tensor(1.0), torch.tensor(1.0), 7)
        return build_network(shape, head, PureDeath(7), width=8, blocks=1)

    assert isinstance(build(5), MLP)
    assert isinstance(build(1, 8, 8), NCSNpp)
    with pytest.raises(ValueError, match=r"got shape \(8, 6\); a grid of labels has one channel: x\[:, None\]"):
        build(8, 6)
    with pytest.raises(ValueError, match=r"images .* got shape \(1, 8, 8, 8\)$"):
        build(1, 8, 8, 8)


@pytest.mark.parametrize(("shape", "levels"), [((1, 8, 8), 2), ((2, 8, 6), 2), ((1, 7, 9), 1), ((1, 12, 5), 1)])
def test_grids_of_any_size_are_trained_and_sampled(shape: tuple[int, ...], levels: int) -> None:
    x = torch.randint(0, 3, (20, *shape), generator=torch.Generator().manual_seed(0))
    model = bo.DiffusionModel.for_data(x, bo.Absorbing(4), width=8, blocks=1).fit(x, steps=2, batch_size=4)
    assert len(model.predictor.network.settings.multipliers) == levels
    samples = model.sample(3, 4)
    assert samples.shape == (3, *shape)
    assert int(samples.max()) < 3
    assert math.isfinite(model.bits_per_dim(x[:4], num_times=2))


def test_statistics_are_those_of_each_channel() -> None:
    x = torch.randint(0, 256, (500, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    mean, std = data_statistics(x)
    assert mean.shape == std.shape == (3, 1, 1)
    torch.testing.assert_close(mean[:, 0, 0], x.double().mean((0, 2, 3)).float())
    torch.testing.assert_close(std[:, 0, 0], x.double().std((0, 2, 3), correction=0).float())


def test_fit_learns_vectors_whose_components_agree() -> None:
    x = torch.randint(0, 8, (64, 1), generator=torch.Generator().manual_seed(0)).expand(64, 5).contiguous()
    model = DiffusionModel(
        PureDeath(7), TIMES, MLP(MLPConfig(features=5, width=32, blocks=1)), BoundedLogitHead(*data_statistics(x), 7)
    )
    before = model.bits_per_dim(x)
    assert model.fit(x, steps=300, batch_size=64, learning_rate=5e-3, ema=0.95) is model
    assert model.bits_per_dim(x) < min(0.8 * before, 1.4)  # three bits for five components are 0.6 a component
    samples = model.sample(64, num_steps=50, sampler=TauLeaping())
    assert samples.shape == (64, 5)
    spread = (samples.amax(-1) - samples.amin(-1)).double().mean()
    assert spread < 3.0  # independent components: 5.2


def test_fit_on_images_leaves_a_model_ready_to_sample() -> None:
    model = images(dropout=0.5).fit(pixels(), steps=3, batch_size=8)
    assert not any(module.training for module in model.predictor.modules())
    samples = model.sample(6, num_steps=10)
    assert samples.shape == (6, 1, 8, 8)
    assert samples.dtype is torch.int64
    assert samples.min() == 0
    assert samples.max() == 1


def test_fit_rejects_data_that_do_not_fit() -> None:
    model = vectors()
    with pytest.raises(ValueError, match=r"shape \(n, 5\), got \(4, 6\)"):
        model.fit(torch.zeros(4, 6, dtype=torch.long), steps=1)
    with pytest.raises(ValueError, match=r"x .*8"):
        model.fit(torch.full((4, 5), 8), steps=1)
    with pytest.raises(ValueError, match="got"):
        model.fit(torch.zeros(0, 5, dtype=torch.long), steps=1)


def test_dropout_is_off_when_denoising() -> None:
    model = shaken(images(dropout=0.5))
    assert torch.equal(differences(model), differences(model))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_dropout_is_on_when_fitting(precision: str) -> None:
    losses = []
    for dropout in (0.0, 0.9):
        model = shaken(images(dropout=dropout))
        model.fit(pixels(), steps=1, batch_size=8, precision=precision, listener=lambda r, _: losses.append(r.loss))
    assert losses[1] != pytest.approx(losses[0], rel=1e-3)


def test_samples_depend_on_the_seed_and_their_number_alone() -> None:
    model = shaken(images())
    samples = model.sample(6, num_steps=10, seed=4)
    assert torch.equal(samples, model.sample(6, num_steps=10, seed=4))
    assert torch.equal(samples, model.sample(6, num_steps=10, seed=4, batch_size=4))
    assert torch.equal(samples[2:], model.sample(4, num_steps=10, seed=4, start_index=2))
    assert not torch.equal(samples, model.sample(6, num_steps=10, seed=5))
    trajectory = model.sample(6, num_steps=10, seed=4, trajectory=True)
    assert trajectory.shape == (11, 6, 1, 8, 8)
    assert torch.equal(trajectory[-1], samples)


@pytest.mark.parametrize("sampler", [BinomialBridge(), BinomialBridge("nearest"), TauLeaping()])
def test_samples_stay_in_range_with_every_sampler(sampler: object) -> None:
    samples = shaken(vectors(), 1.0).sample(50, num_steps=10, sampler=sampler)
    assert int(samples.min()) >= 0
    assert int(samples.max()) <= 7


def test_the_bits_of_independent_pixels_are_their_entropy() -> None:
    x = pixels(64)
    model = images()  # a fresh network leaves the head its right answer
    bits = model.bits_per_dim(x)
    q = float(x.double().mean())
    exact = -q * math.log2(q) - (1 - q) * math.log2(1 - q)
    assert 0 < bits.standard_error < 0.05
    assert float(bits) == pytest.approx(exact, abs=4 * bits.standard_error)
    assert str(bits) == f"{float(bits):.4f} ± {bits.standard_error:.4f}"


def test_bits_do_not_depend_on_the_batch_size() -> None:
    model, x = shaken(images()), pixels(6)
    x[2] = 0  # an all-dark image is one like the others
    bits = [model.bits_per_dim(x, seed=3, num_times=8, batch_size=size) for size in (6, 4, 1)]
    assert float(bits[1]) == pytest.approx(float(bits[0]), rel=1e-4)
    assert float(bits[2]) == pytest.approx(float(bits[0]), rel=1e-4)
    assert bits[2].standard_error == pytest.approx(bits[0].standard_error, rel=1e-3)
    assert float(model.bits_per_dim(x, seed=4, num_times=8)) != float(bits[0])


@pytest.mark.parametrize("make", [images, vectors])
def test_a_saved_model_loads_as_the_same_model(tmp_path: Path, make: type[DiffusionModel]) -> None:
    model = shaken(make())
    again = load(model.save(tmp_path))
    assert torch.equal(differences(again), differences(model))
    assert torch.equal(again.sample(3, num_steps=10), model.sample(3, num_steps=10))
    assert again.config() == model.config()
    for dtype in (torch.float16, torch.int8):
        rounded = differences(load(model.save(tmp_path / str(dtype), dtype)))
        torch.testing.assert_close(rounded, differences(model), rtol=0.05, atol=0.02)


@pytest.mark.parametrize("name", bo.pretrained())
def test_pretrained_models_are_small_and_give_samples_of_the_right_brightness(name: str) -> None:
    folder = Path(bo.__file__).parent / "pretrained" / name
    kind = name.removesuffix("-likelihood")
    limit = {"seven-segment": 1, "mnist-binary": 4, "cifar10": 32}[kind] * 2**20
    assert sum(file.stat().st_size for file in folder.iterdir()) <= limit
    assert all(file.stat().st_size <= 2**24 for file in folder.iterdir())
    model = bo.load(name)
    assert f"\n  trained: {model.record.runs[0]}\n" in repr(model)
    brightness = model.sample(2, num_steps=8).double().mean() / model.process.max_count
    lowest, highest = {"seven-segment": (0.1, 0.4), "mnist-binary": (0.02, 0.3), "cifar10": (0.2, 0.8)}[kind]
    assert lowest < brightness < highest


def test_a_head_with_another_largest_count_is_saved_and_loaded(tmp_path: Path) -> None:
    model = shaken(vectors(SoftplusHead(torch.tensor(2.0), torch.tensor(1.0))))
    assert torch.equal(differences(load(model.save(tmp_path))), differences(model))


# 7.3 million weights in tensors of up to 8 MiB; and one with tensors larger than a shard.
@pytest.mark.parametrize("size", [{"features": 1000, "width": 1024}, {"features": 17_000, "width": 256}])
def test_weights_are_saved_in_shards_of_at_most_16_mebibytes(tmp_path: Path, size: dict[str, int]) -> None:
    model = vectors(BoundedLogitHead(torch.tensor(2.0), torch.tensor(1.0), 7), **size)
    model.save(tmp_path)
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert torch.equal(differences(load(tmp_path)), differences(model))
    assert max(shard.stat().st_size for shard in shards) <= 16 * 2**20


def test_saving_again_leaves_no_old_shards(tmp_path: Path) -> None:
    vectors(BoundedLogitHead(torch.tensor(2.0), torch.tensor(1.0), 7), features=1000, width=1024).save(tmp_path)
    model = shaken(vectors())
    assert torch.equal(differences(load(model.save(tmp_path))), differences(model))
    assert len(list(tmp_path.glob("model-*"))) == 1


def test_a_run_folder_gives_the_averaged_weights(tmp_path: Path) -> None:
    model = vectors().fit(counts(), steps=5, batch_size=8, out=tmp_path, learning_rate=0.05)
    assert torch.equal(differences(load(tmp_path)), differences(model))
    averaged, raw = (tmp_path / "checkpoints" / "step-000000005" / name for name in ("averaged", "weights"))
    assert averaged.with_suffix(".safetensors").read_bytes() != raw.with_suffix(".safetensors").read_bytes()


def test_a_run_folder_that_rejected_another_network_still_loads(tmp_path: Path) -> None:
    model = vectors().fit(counts(), steps=2, batch_size=8, out=tmp_path)
    with pytest.raises(ValueError, match="does not fit the network"):
        vectors(width=32).fit(counts(), steps=4, batch_size=8, out=tmp_path)
    assert torch.equal(differences(load(tmp_path)), differences(model))


def test_a_run_folder_rejects_another_run_and_a_saved_model(tmp_path: Path) -> None:
    run, saved = tmp_path / "run", tmp_path / "saved"
    model = vectors().fit(counts(), steps=2, batch_size=8, out=run)
    with pytest.raises(
        ValueError, match=r"run holds a run that differs in learning_rate \(0.001 there, 0.5 here\), seed"
    ):
        vectors().fit(counts(), steps=4, batch_size=8, out=run, learning_rate=0.5, seed=7)
    assert json.loads((run / "config.json").read_text())["optimiser"]["learning_rate"] == 0.001
    with pytest.raises(ValueError, match="run holds a run, which has its weights in checkpoints"):
        model.save(run)
    model.save(saved)
    with pytest.raises(ValueError, match="saved holds a saved model, which is not a run to resume"):
        model.fit(counts(), steps=2, batch_size=8, out=saved)
    assert torch.equal(differences(load(run)), differences(load(saved)))


def test_a_fit_that_diverges_leaves_the_model_as_it_was() -> None:
    model = vectors().fit(counts(), steps=2, batch_size=8)
    before = differences(model)
    with pytest.raises(Diverged):
        model.fit(counts(), steps=50, batch_size=8, learning_rate=1e30)
    assert torch.equal(differences(model), before)


def test_bits_of_softplus_are_those_of_the_steps() -> None:
    """The estimate from some of the steps agrees with the bound of all of them, Poisson leaps; four standard errors."""
    model, x = shaken(vectors(SoftplusHead(*data_statistics(counts()), 7))), counts(256)
    bits, few = model.bits_per_dim(x, num_times=64), model.bits_per_dim(x, num_times=8)
    assert (bits.bound, few.bound) == ("steps", "steps")
    every = TauLeaping().bound(model.denoiser(), model.process, TIMES, x, 1) / (5 * math.log(2))
    error = math.hypot(few.standard_error, float(every.std()) / 16)
    assert float(few) == pytest.approx(float(every.mean()), abs=4 * error)
    assert bits.standard_error < few.standard_error < 0.2 * float(few)
    with pytest.warns(InfiniteBoundWarning, match="infinite for 256 of 256"):
        infinite = model.bits_per_dim(x, bound="continuous")
    assert (str(infinite), infinite.bound) == ("inf", "continuous")
    with pytest.warns(InfiniteBoundWarning):  # the numerical check agrees with the declaration of the head
        assert bool(torch.isinf(bo.evidence_bound(model.denoiser(), model.process, x[(x < 7).any(1)], 2)).all())


@pytest.mark.parametrize("name", ["bounded-logit", "gamma-poisson", "categorical", "levels", "mixture"])
def test_bits_of_other_heads_are_continuous_and_finite(name: str) -> None:
    """The numerical check raises no alarm for heads that declare a finite bound, whatever their weights."""
    x = counts(16)
    model = shaken(DiffusionModel.for_data(x, PureDeath(7), TIMES, head=name, width=16, blocks=1))
    bits = model.bits_per_dim(x, num_times=4)
    assert (bits.bound, math.isfinite(bits)) == ("continuous", True)
    checked = bo.evidence_bound(model.denoiser(), model.process, x, 4, method="monte-carlo") / (5 * math.log(2))
    assert float(checked.mean()) == pytest.approx(float(bits))
    steps = model.bits_per_dim(x, num_times=50, bound="steps")
    assert (steps.bound, math.isfinite(steps)) == ("steps", True)


@pytest.mark.parametrize("process", [bo.Uniform(8), bo.Absorbing(9), bo.BirthDeath(8, immigration=1.0)], ids=repr)
@pytest.mark.parametrize("name", ["categorical", "rates"])
def test_bits_of_other_processes_are_continuous_and_finite(process: bo.MarkovProcess, name: str) -> None:
    x, times = counts(8), ObservationTimes.for_process(process, 20)
    model = shaken(DiffusionModel.for_data(x, process, times, head=name, width=16, blocks=1))
    bits = model.bits_per_dim(x, num_times=4)
    checked = bo.evidence_bound(model.denoiser(), process, x, 4, method="monte-carlo") / (5 * math.log(2))
    assert math.isfinite(bits)
    assert float(checked.mean()) == pytest.approx(float(bits))
    assert math.isfinite(model.bits_per_dim(x, num_times=3, bound="steps"))


def test_unknown_and_impossible_bounds_are_rejected() -> None:
    with pytest.raises(ValueError, match="bound must be one of 'auto', 'continuous', 'steps', got 'exact'"):
        vectors().bits_per_dim(counts(2), bound="exact")
    chain = bo.Chain(0.5 * torch.eye(8) + 0.5 * torch.full((8, 8), 1 / 8))
    model = DiffusionModel.for_data(counts(), chain, ObservationTimes.from_values(range(1, 9)), width=8, blocks=1)
    with pytest.raises(ValueError, match="bound must be 'steps' for a chain in discrete time, got 'continuous'"):
        model.bits_per_dim(counts(2), bound="continuous")
    assert model.bits_per_dim(counts(2)).bound == "steps"


def test_bits_keep_their_error_when_copied_and_pickled() -> None:
    bits = BitsPerDim(2.5, 0.25, "steps")
    for copied in (copy.deepcopy(bits), pickle.loads(pickle.dumps(bits))):
        assert (copied, copied.standard_error, copied.bound) == (2.5, 0.25, "steps")


def test_sources_that_are_not_models_are_rejected_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no-such-model is neither a folder nor a pretrained model"):
        load("no-such-model")
    with pytest.raises(ValueError, match=f"{tmp_path / 'model.json'}"):
        load(tmp_path)
    (tmp_path / "model.json").write_text("{")
    with pytest.raises(ValueError, match=f"{tmp_path / 'model.json'}"):
        load(tmp_path)
    write_json(tmp_path / "model.json", vectors().config())
    with pytest.raises(ValueError, match="has no weights"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format", 99),
        ("format", None),
        ("network", {"kind": "Transformer"}),
        ("network", {"kind": "mlp", "features": 5, "layers": 3}),
        ("network", 3),
        ("head", {"kind": "linear", "statistics": [5]}),
        ("head", {"kind": "softplus", "statistics": [5]}),
        ("times", [2.0, 1.0]),
        ("time_input", "calendar"),
        ("process", {"kind": "pure-death", "max_count": -1}),
        ("process", {"kind": "uniform", "max_count": 7}),
    ],
)
def test_an_invalid_description_is_rejected(tmp_path: Path, name: str, value: object) -> None:
    model = vectors()
    model.save(tmp_path)
    (tmp_path / "model.json").write_text(json.dumps({**model.config(), name: value}))
    with pytest.raises(ValueError, match=r"model\.json does not describe a model"):
        load(tmp_path)


def test_weights_of_another_shape_or_kind_are_rejected_by_name(tmp_path: Path) -> None:
    vectors().save(tmp_path)
    files = read_json(tmp_path / "model.json")["weights"]
    write_json(tmp_path / "model.json", {**vectors(width=32).config(), "weights": files})
    with pytest.raises(ValueError, match=f"{tmp_path}.* does not fit the network"):
        load(tmp_path)
    (path,) = (tmp_path / name for name in files)
    path.write_bytes(b"PK\x03\x04")
    write_json(tmp_path / "model.json", {**vectors().config(), "weights": {path.name: file_digest(path)}})
    with pytest.raises(ValueError, match="pickled"):
        load(tmp_path)


def test_shapes_and_dropout_in_a_description_must_fit_the_network(tmp_path: Path) -> None:
    images = bo.DiffusionModel.for_data(torch.zeros(4, 1, 4, 4, dtype=torch.long), bo.PureDeath(3), width=8, blocks=1)
    labels = bo.DiffusionModel.for_data(torch.zeros(4, 5, dtype=torch.long), bo.Uniform(3), width=8, blocks=1)
    wrong = {
        images: ([], [4], [0], [1, 4], [0, 4, 4], [2, 4, 4], [1, 3, 4], [4, 4, 1, 1], [1, 2**29, 2**29]),
        labels: ([], [0], [4], [6], [5, 5], [1, 5]),
    }
    for model, shapes in wrong.items():
        model.save(tmp_path)
        description = read_json(tmp_path / "model.json")
        for shape in shapes:
            write_json(tmp_path / "model.json", description | {"shape": shape})
            with pytest.raises(ValueError, match=r"model\.json does not describe a model: .*shape"):
                load(tmp_path)
        wrong = [("dropout", value) for value in (math.nan, -0.1, 1, "much", None)]
        for name, value in [*wrong, ("blocks", 10**7), ("blocks", -1)]:
            network = description["network"] | {name: value}
            write_json(tmp_path / "model.json", description | {"network": network})
            with pytest.raises(ValueError, match=rf"model\.json does not describe a model: .*{name}"):
                load(tmp_path)
        write_json(tmp_path / "model.json", description)
        load(tmp_path)


def test_sizes_in_a_description_take_no_memory(tmp_path: Path) -> None:
    """30 GB of weights, none of which are there."""
    model = vectors()
    model.save(tmp_path)
    description = read_json(tmp_path / "model.json")
    for width in (0, -4, 3, 10**40, "wide", None, [8]):
        write_json(tmp_path / "model.json", description | {"network": description["network"] | {"width": width}})
        with pytest.raises(ValueError, match=r"model\.json does not describe a model: .*") as error:
            load(tmp_path)
        assert "\n" not in str(error.value)
    write_json(tmp_path / "model.json", description | {"network": description["network"] | {"width": 40_000}})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match="does not fit the network"):
        load(tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**19  # KiB


def test_a_flipped_bit_in_a_saved_model_is_named(tmp_path: Path) -> None:
    vectors().save(tmp_path)
    for path in tmp_path.iterdir():
        content = bytearray(path.read_bytes())
        for place in (len(content) // 2, len(content) - 70):
            content[place] ^= 1
            path.write_bytes(content)
            with pytest.raises(ValueError, match=f"{path}"):
                load(tmp_path)
            content[place] ^= 1
        path.write_bytes(content)
    assert torch.equal(differences(load(tmp_path)), differences(vectors()))


def test_save_leaves_the_files_of_others(tmp_path: Path) -> None:
    others = ["model-mine.safetensors", f"model-00001-of-00001-{'0' * 16}.safetensors", "notes.txt"]
    for name in others:
        (tmp_path / name).write_text("mine")
    vectors().save(tmp_path)
    model = shaken(vectors())
    assert torch.equal(differences(load(model.save(tmp_path))), differences(model))
    assert all((tmp_path / name).read_text() == "mine" for name in others)
    assert len(list(tmp_path.iterdir())) == len(others) + 2
    (tmp_path / "model.json").write_text('{"mine": true}')
    with pytest.raises(ValueError, match=r"model\.json .* is not overwritten"):
        model.save(tmp_path)
    assert (tmp_path / "model.json").read_text() == '{"mine": true}'


def test_saved_files_have_the_usual_permissions_and_leftovers_go(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    folder = vectors().save(tmp_path / "model")
    assert {path.stat().st_mode for path in folder.iterdir()} == {(tmp_path / "usual").stat().st_mode}
    (folder / "weights.partial").mkdir()
    (folder / "weights.partial" / ".tmp123").touch()
    (weights,) = folder.glob("model-*.safetensors")
    content = weights.read_bytes() + b"\0"
    digest = hashlib.sha256(content).hexdigest()  # of weights that a killed save has left
    weights.with_name(f"model-00001-of-00001-{digest[:16]}.safetensors").write_bytes(content)
    (folder / "model.lock").touch()
    vectors().save(folder)
    assert {path.name for path in folder.iterdir()} == {"model.json", weights.name}


def test_pretrained_models_load_by_name() -> None:
    names = pretrained()
    assert isinstance(names, list)
    assert all(load(name).shape is not None for name in names)


def test_calls_that_do_not_fit_the_model_are_rejected(tmp_path: Path) -> None:
    network, head = MLP(MLPConfig(features=5)), SoftplusHead(torch.tensor(1.0), torch.tensor(1.0), 7)
    with pytest.raises(ValueError, match="process must be PureDeath"):
        DiffusionModel(Uniform(8), TIMES, network, head)
    with pytest.raises(ValueError, match="the shape of the data is not known"):
        DiffusionModel(PureDeath(7), TIMES, network, head).sample(1)
    with pytest.raises(ValueError, match=r"label .* got 0"):
        vectors().sample(1, label=0)
    with pytest.raises(ValueError, match="Linear is not a registered network"):
        DiffusionModel(PureDeath(7), TIMES, torch.nn.Linear(5, 5), head).save(tmp_path)


def test_a_class_conditional_model_samples_the_given_class() -> None:
    labels = torch.arange(64) % 2
    x = 7 * labels.reshape(-1, 1).expand(64, 5)
    model = vectors(num_classes=2).fit(x, labels, steps=200, batch_size=32, learning_rate=1e-2, ema=0.9)
    assert model.sample(8, num_steps=20, label=0).double().mean() < 0.5
    assert model.sample(8, num_steps=20, label=1).double().mean() > 6.5


def test_images_with_classes_and_times_by_index_are_saved_and_loaded(tmp_path: Path) -> None:
    network = NCSNpp(UNetConfig(channels=1, resolution=8, width=8, multipliers=(1, 2), blocks=1, num_classes=3))
    head = SoftplusHead(torch.full((1, 1, 1), 0.3), torch.full((1, 1, 1), 0.4), 1)
    model = shaken(DiffusionModel(PureDeath(1), TIMES, network, head, "index", (1, 8, 8)))
    again, xt = load(model.save(tmp_path)), pixels(2)
    assert again.num_classes == 3
    for label in (0, torch.tensor([1, 2]), None):
        assert torch.equal(*(m.posterior(xt, TIMES.values[20], label).difference() for m in (again, model)))


def test_a_model_remembers_how_its_recipe_samples(tmp_path: Path) -> None:
    x = torch.randint(0, 5, (16, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    grid = ObservationTimes.fisher(30)
    model = DiffusionModel.for_data(x, PureDeath(4), grid, head="softplus", width=8, blocks=1, dropout=0.5)
    ours = model.with_sampling(sampler="bridge-nearest", num_steps=7)
    ours.save(tmp_path / "model")
    back = load(tmp_path / "model")
    assert back.record.sampling == ours.record.sampling
    assert vars(back.sampler()) == vars(BinomialBridge(rounding="nearest"))
    assert len(back.sampling_times("auto")) == 7
    assert len(back.sampling_times(None)) == len(model.sampling_times("auto")) == 30
    assert torch.equal(back.sample(3), model.sample(3, 7, BinomialBridge(rounding="nearest")))


def test_dropout_while_sampling_changes_samples_and_follows_from_the_seed() -> None:
    x = torch.randint(0, 5, (16, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    model = shaken(DiffusionModel.for_data(x, PureDeath(4), head="softplus", width=8, blocks=1, dropout=0.5))
    dropping, state = model.with_sampling(dropout=True), torch.random.get_rng_state()
    first = dropping.sample(4, 10)
    assert torch.equal(first, dropping.sample(4, 10))
    assert not torch.equal(first, model.sample(4, 10))
    assert not torch.equal(first, dropping.sample(4, 10, seed=1))
    assert torch.equal(state, torch.random.get_rng_state())
    assert not model.predictor.network.training
