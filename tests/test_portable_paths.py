"""Names of files: with spaces and umlauts, long, in capitals, and valid on Windows and macOS too."""

import subprocess
from pathlib import Path, PurePath, PureWindowsPath

import numpy
import pytest
from PIL import Image

import blackout as bo
from blackout import hub
from blackout.data import open_dataset
from test_cli import status
from test_cli_train import TINY

ROOT = Path(__file__).parent.parent
FORBIDDEN = set('<>:"|?*\\')  # by Windows, in the name of a file
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{k}" for port in ("com", "lpt") for k in range(10))}


def check_portable(paths: list[PurePath]) -> None:
    """Every name can be written on Windows, and no two differ in their case alone, which macOS does not distinguish."""
    for path in paths:
        for part in path.parts:
            assert not set(part) & FORBIDDEN, path
            assert part.partition(".")[0].lower() not in RESERVED, path
            assert not part.endswith((".", " ")), path
        assert len(str(path)) < 160, path
    names = [str(path).lower() for path in paths]
    assert len(set(names)) == len(names)


def test_files_of_the_repository_are_portable() -> None:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a clone")
    check_portable([PurePath(name) for name in done.stdout.split("\0") if name])


def test_runs_and_samples_under_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "Läufe mit Leerzeichen" / ("ein sehr langer Name " * 8).strip()
    run = folder / "Ünïcode & 'quotes'"
    assert status(["train", "digits", *TINY, "--steps", "2", "--out", str(run)], monkeypatch) == 0
    for name in ("Bild Nr. 1.PNG", "Felder.NPZ"):
        words = ["sample", str(run), "--num", "2", "--steps", "2", "--out", str(folder / name)]
        assert status(words, monkeypatch) == 0
    with Image.open(folder / "Bild Nr. 1.PNG") as image, numpy.load(folder / "Felder.NPZ") as arrays:
        assert image.format == "PNG"
        assert arrays["x"].shape == (2, 1, 8, 8)
    written = [path.relative_to(run) for path in run.rglob("*")]
    assert len(written) > 4
    check_portable(list(written))


@pytest.mark.parametrize("name", ["ZAHLEN.NPY", "Größe 3.npy", "viele.Punkte.im.Namen.Npz"])
def test_arrays_under_any_name(name: str, tmp_path: Path) -> None:
    x = numpy.arange(12, dtype=numpy.uint8).reshape(3, 4)
    with (tmp_path / name).open("wb") as file:
        numpy.savez(file, x=x) if name.endswith("Npz") else numpy.save(file, x)
    assert open_dataset(tmp_path / name).x.tolist() == x.tolist()


def test_cells_under_a_name_in_capitals(tmp_path: Path) -> None:
    from blackout.cells.sampling import write_samples

    model = bo.CountModel(width=8, blocks=1).fit(numpy.arange(1, 21).reshape(4, 5), steps=1)
    for name in ("Zellen.NPZ", "Zellen.H5AD"):
        assert write_samples(model, tmp_path / name, 2, num_steps=1).exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Zellen.H5AD", "Zellen.NPZ"]


@pytest.mark.parametrize("path", [r"C:\models\digits", r"\\server\share\digits", r"D:digits"])
def test_paths_of_windows_are_no_addresses(path: str) -> None:
    assert hub.local(path) == path
    assert hub.local(PureWindowsPath(path)) == PureWindowsPath(path)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is neither a folder nor a pretrained model"):
        bo.load(path)
