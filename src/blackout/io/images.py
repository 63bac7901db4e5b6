"""Output of a sampling job: an image grid (.png), arrays (.npz) or a folder of images. Each records its job."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from blackout.files import check_overwrite

if TYPE_CHECKING:
    from PIL.Image import Image

_MIN_WIDTH = 512  # pixels of a grid
_GAP = 2
_GREY = 96
_UNSUPPORTED = (".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".pdf", ".svg", ".npy", ".pt", ".safetensors")


def check_output(out: Path, shape: tuple[int, ...], job: dict[str, Any], overwrite: bool = False) -> None:
    """Reject, before sampling, an output that cannot be written, or that exists and holds no samples."""
    if out.suffix.lower() in _UNSUPPORTED:
        raise ValueError(f"out must end in .png or .npz or be a folder, got {out}")
    if out.suffix.lower() in (".npz", ".png"):
        if out.is_dir():
            raise ValueError(f"out must be a file if it ends in {out.suffix}, but {out} is a folder")
        check_overwritable(out, overwrite)
    elif out.exists() and not out.is_dir():
        raise ValueError(f"out must end in .png or .npz or be a folder, but {out} is a file")
    elif out.is_dir() and any(out.iterdir()) and not is_finished(out, job):
        raise ValueError(f"out must be a new or empty folder, but {out} holds other files")
    if out.suffix.lower() != ".npz" and (len(shape) != 3 or shape[0] not in (1, 3)):
        raise ValueError(f"out must end in .npz for samples of shape {shape}, which are not images, got {out}")


def check_overwritable(out: Path, overwrite: bool = False) -> None:
    """Reject an existing file that records no sampling job."""
    if out.is_file():
        check_overwrite(out, lambda: read_job(out) is not None, overwrite, "and holds no samples", "--out", "file")


def is_finished(out: Path, job: dict[str, Any]) -> bool:
    """Whether an output is that of a job, in whatever shards it was computed."""
    found = read_job(out)
    return found is not None and {**found, "shard": 0} == {**job, "shard": 0}


def read_job(out: Path) -> dict[str, Any] | None:
    """The job of a finished output; None if it records none."""
    try:
        if out.suffix.lower() == ".npz":
            with out.open("rb") as file, numpy.load(file, allow_pickle=False) as arrays:
                return dict(json.loads(str(arrays["job"])))
        if out.suffix.lower() == ".png":
            from PIL.PngImagePlugin import PngImageFile

            with PngImageFile(out) as image:  # Image.open limits the size, which a grid of many samples exceeds
                return dict(json.loads(image.info["job"]))
        return dict(json.loads((out / "job.json").read_text()))
    except Exception:  # damaged files raise many types
        return None


def write_arrays(path: Path, x: NDArray[Any], job: dict[str, Any]) -> None:
    plain: dict[str, Any] = {name: numpy.array(job[name]) for name in ("seed", "steps", "sampler")}
    with path.open("wb") as file:
        numpy.savez_compressed(file, x=x, job=numpy.array(json.dumps(job)), **plain)


def write_grid(
    path: Path, x: NDArray[Any], max_state: int, job: dict[str, Any] | None = None, columns: int | None = None
) -> None:
    """All samples (n, channels, height, width) in one image, about square or with so many in a row."""
    from PIL.PngImagePlugin import PngInfo

    info = PngInfo()
    if job is not None:
        info.add_text("job", json.dumps(job))
    as_image(image_grid(as_bytes(x, max_state), columns)).save(path, format="png", pnginfo=info)


def write_folder(path: Path, shards: Iterator[NDArray[Any]], max_state: int, job: dict[str, Any]) -> None:
    path.mkdir()
    number = 0
    for x in shards:
        for image in as_bytes(x, max_state):
            as_image(image).save(path / f"{number:06d}.png")
            number += 1
    (path / "job.json").write_text(json.dumps(job, indent=2) + "\n")


def image_grid(x: NDArray[numpy.uint8], columns: int | None = None) -> NDArray[numpy.uint8]:
    """Images (n, channels, height, width) side by side; small ones are enlarged by an integer factor."""
    n, channels, height, width = x.shape
    columns = columns or math.ceil(math.sqrt(n * height / width))
    rows = math.ceil(n / columns)
    factor = max(1, math.ceil(_MIN_WIDTH / (columns * width)))
    x = x.repeat(factor, axis=2).repeat(factor, axis=3)
    high, wide = x.shape[2] + _GAP, x.shape[3] + _GAP
    out = numpy.full((channels, rows * high + _GAP, columns * wide + _GAP), _GREY, numpy.uint8)
    for k, image in enumerate(x):
        top, left = _GAP + k // columns * high, _GAP + k % columns * wide
        out[:, top : top + x.shape[2], left : left + x.shape[3]] = image
    return out


def as_bytes(x: NDArray[Any], max_state: int) -> NDArray[numpy.uint8]:
    """States 0, ..., max_state as grey levels 0 to 255."""
    scaled: NDArray[numpy.float32] = numpy.multiply(x, 255 / max(1, max_state), dtype=numpy.float32)
    return numpy.rint(numpy.minimum(scaled, 255)).astype(numpy.uint8)


def as_image(image: NDArray[numpy.uint8]) -> "Image":
    """Grey levels (channels, height, width) as a Pillow image."""
    from PIL import Image

    return Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))
