"""The Hugging Face Hub, through huggingface_hub and a server on this machine."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import numpy
import pytest
import torch
import yaml
from huggingface_hub import constants

import blackout as bo
from blackout import hub
from hub_server import TOKEN, Hub
from test_cli import status


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with Hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
    huggingface_hub.close_session()


@pytest.fixture(scope="module")
def model() -> bo.DiffusionModel:
    x = torch.arange(64).reshape(16, 1, 2, 2) % 5
    model = bo.DiffusionModel.for_data(x, bo.PureDeath(max_count=4), width=8, blocks=1, num_classes=2)
    model.fit(x, [i % 2 for i in range(16)], class_names=["left|right", "up"], steps=2, batch_size=4)
    return model.with_sampling(num_steps=7)


def front_matter(card: str) -> dict[str, object]:
    return dict(yaml.safe_load(card.split("---")[1]))


def test_model_returns_from_the_hub(server: Hub, model: bo.DiffusionModel, tmp_path: Path) -> None:
    bits = model.bits_per_dim(torch.zeros(2, 1, 2, 2, dtype=torch.long), num_times=4)
    address = model.push_to_hub("ada/letters", license="cc0-1.0", bits=bits, token=TOKEN)
    assert address == "hf://ada/letters"
    files = server.repos["ada/letters"][-1]
    saved = {path.name for path in model.save(tmp_path / "saved").iterdir()}
    assert set(files) == {".gitattributes", "README.md", *saved}
    loaded = bo.load(address)
    wanted = model.sample(3, seed=1, label=0)
    assert torch.equal(loaded.sample(3, seed=1, label=0), wanted)
    assert torch.equal(bo.DiffusionModel.from_pretrained("ada/letters").sample(3, seed=1, label=0), wanted)
    assert "README.md" not in server.downloads
    assert len(server.downloads) == 2, "files in the cache are not downloaded again"

    card = files["README.md"].decode()
    data = front_matter(card)
    assert data["license"] == "cc0-1.0"
    assert data["library_name"] == "blackout-diffusion"
    assert data["pipeline_tag"] == "unconditional-image-generation"
    assert "| shape of a data point | 1 × 2 × 2 |" in card
    assert "| sampling steps | 7 |" in card
    assert f"| bits/dim | {bits} (continuous bound) |" in card
    assert "| classes | left\\|right, up |" in card
    assert "- own data (16), likelihood loss, 2 steps of 4" in card
    code = card.split("```python\n")[1].split("```")[0]
    names: dict[str, object] = {}
    exec(code, names)
    assert names["samples"].shape == (16, 1, 2, 2)  # type: ignore[attr-defined]


def test_commits_and_revisions(server: Hub, model: bo.DiffusionModel, tmp_path: Path) -> None:
    """A second push replaces the files of the first, which keeps its commit; other files are left alone."""
    server.repos["ada/letters"] = []
    first = server.commit(
        "ada/letters", {"notes.txt": b"mine", "model-00001-of-00002.safetensors": b"old", "model.json": b"{"}
    )
    model.push_to_hub("ada/letters", token=TOKEN)
    saved = {path.name for path in model.save(tmp_path / "saved").iterdir()}
    assert set(server.repos["ada/letters"][1]) == {"README.md", "notes.txt", *saved}
    assert bo.load("hf://ada/letters").num_classes == 2
    with pytest.raises(ValueError, match=r"model\.json cannot be read"):
        bo.load(f"hf://ada/letters@{first}")
    with pytest.raises(ValueError, match="hf://ada/letters@never is not on the Hugging Face Hub"):
        bo.load("hf://ada/letters@never")


def test_command_line_samples_from_the_hub(
    server: Hub,
    model: bo.DiffusionModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model.push_to_hub("ada/letters", token=TOKEN)
    out = tmp_path / "x.npz"
    assert status(["sample", "hf://ada/letters", "--num", "2", "--steps", "2", "--out", str(out)], monkeypatch) == 0
    assert numpy.load(out)["x"].shape == (2, 1, 2, 2)
    capsys.readouterr()
    assert status(["sample", "hf://ada/none", "--out", str(out.with_name("y.npz"))], monkeypatch) == 2
    error = capsys.readouterr().err
    assert error.startswith("blackout: hf://ada/none is not on the Hugging Face Hub")
    assert error.count("\n") == 1


def test_cells_return_from_the_hub(server: Hub, tmp_path: Path) -> None:
    counts = numpy.random.default_rng(0).poisson(2.0, (24, 5))
    cells = bo.CountModel(width=8, blocks=1).fit(counts, steps=2, batch_size=4)
    cells.push_to_hub("ada/cells", token=TOKEN)
    again = bo.CountModel.from_pretrained("ada/cells")
    assert (again.sample(2, num_steps=2).X != cells.sample(2, num_steps=2).X).nnz == 0
    card = server.repos["ada/cells"][-1]["README.md"].decode()
    assert "bo.CountModel.from_pretrained('ada/cells')" in card
    assert "pipeline_tag" not in front_matter(card)
    with pytest.raises(ValueError, match="hf://ada/cells holds a model of cells: use CountModel"):
        bo.load("hf://ada/cells")


def test_offline_the_cache_is_enough(server: Hub, model: bo.DiffusionModel, monkeypatch: pytest.MonkeyPatch) -> None:
    model.push_to_hub("ada/letters", token=TOKEN)
    model.push_to_hub("ada/other", token=TOKEN)
    bo.load("hf://ada/letters")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert bo.load("hf://ada/letters").num_classes == 2
    with pytest.raises(ConnectionError, match="hf://ada/other: Cannot find an appropriate cached snapshot"):
        bo.load("hf://ada/other")


def test_what_cannot_be_pushed_or_loaded(
    server: Hub, model: bo.DiffusionModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="hf://ada/letters: the Hugging Face Hub does not accept the token"):
        model.push_to_hub("ada/letters", token="wrong")
    assert server.repos == {}
    with pytest.raises(ValueError, match=r"hf://a/b/c: Repo id must be"):
        bo.load("hf://a/b/c")
    server.repos["ada/pickle"] = []
    server.commit("ada/pickle", {"model.json": b"[]", "model.bin": b"\x80\x04", "load.py": b"raise SystemExit"})
    with pytest.raises(ValueError, match="expected a JSON object, got list"):
        bo.load("hf://ada/pickle")
    assert server.downloads == ["model.json"]
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ConnectionError, match="hf://ada/letters: "):
        model.push_to_hub("ada/letters", token=TOKEN)


def test_without_the_package_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"pip install 'blackout-diffusion\[hub\]'"):
        hub.download("hf://ada/letters")
