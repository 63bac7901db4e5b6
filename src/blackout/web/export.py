"""Files to download, and the command and Python code that reproduce the samples."""

import csv
import io
import json
import shlex
import zipfile
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from blackout.io.images import as_bytes, as_image, image_grid
from blackout.model import DiffusionModel
from blackout.web.requests import SamplingRequest

_OPTIONS = {"num_steps": "--steps", "label": "--class"}  # other arguments have an option of their own name
_FILES = {"observed": "observed.npy", "mask": "mask.npy"}


class Step(NamedTuple):
    """One step: its time, the mean state, and the births and deaths per image."""

    step: int
    time: float
    mean: float
    births: float
    deaths: float


def code(model: DiffusionModel, request: SamplingRequest, device: str) -> dict[str, str]:
    """The command, to be run where the page was started, and the Python code that give the same integers."""
    return {"command": command(request, device), "python": python(model, request)}


def command(request: SamplingRequest, device: str) -> str:
    words = ["blackout", "sample", request.model, "--num", request.num]
    for name, value in request.arguments().items():
        words += [_OPTIONS.get(name, f"--{name}"), _FILES.get(name, value)]
    if request.correctors:
        words += ["--correctors", request.correctors]
    if device != "auto":
        words += ["--device", device]
    return shlex.join(map(str, [*words, "--out", "samples.npz"]))


def python(model: DiffusionModel, request: SamplingRequest) -> str:
    device = "" if model.device.type == "cpu" else f'.to("{model.device}")'
    lines = ["import blackout as bo", "", f"model = bo.load({json.dumps(request.model)}){device}"]
    if request.observed is not None:
        lines = ["import numpy", "", *lines]
        lines += [f'{name} = numpy.load("{file}")' for name, file in _FILES.items()]
    values = {name: name if name in _FILES else json.dumps(value) for name, value in request.arguments().items()}
    if request.correctors:
        values["sampler"] = f"model.sampler({values['sampler']}, corrector_steps={request.correctors})"
    arguments = "".join(f", {name}={value}" for name, value in values.items())
    return "\n".join([*lines, f"x = model.sample({request.num}{arguments})", ""])


def files(
    model: DiffusionModel, request: SamplingRequest, x: NDArray[Any], steps: list[Step], device: str
) -> dict[str, bytes]:
    """Contents of all files by name; samples.zip holds the others."""
    max_state = int(x.max()) if model.max_state is None else model.max_state
    contents = {"samples.png": _png(image_grid(as_bytes(x, max_state))), "samples.npz": _npz(x, request)}
    if request.observed is not None and request.mask is not None:
        contents |= {"observed.npy": _npy(request.observed.numpy().astype(x.dtype)), "mask.npy": _npy(request.mask)}
        contents["std.png"] = _png(image_grid(standard_deviation(x)[None]))
    contents["steps.csv"] = _csv(steps)
    contents["reproduce.py"] = f"# {command(request, device)}\n\n{python(model, request)}".encode()
    return {**contents, "samples.zip": _zip(contents)}


def standard_deviation(x: NDArray[Any]) -> NDArray[numpy.uint8]:
    """The standard deviation over samples, averaged over channels, (1, height, width); 255 is the largest of them."""
    std = x.astype(numpy.float64).std(axis=0).mean(axis=0, keepdims=True)
    relative: NDArray[numpy.float64] = std * (255 / max(float(std.max()), 1e-12))
    return numpy.rint(relative).astype(numpy.uint8)


def _png(levels: NDArray[numpy.uint8]) -> bytes:
    buffer = io.BytesIO()
    as_image(levels).save(buffer, format="png")
    return buffer.getvalue()


def _npz(x: NDArray[Any], request: SamplingRequest) -> bytes:
    values: dict[str, Any] = {
        name: numpy.array(getattr(request, name)) for name in ("seed", "steps", "sampler", "model")
    }
    buffer = io.BytesIO()
    numpy.savez_compressed(buffer, x=x, **values)
    return buffer.getvalue()


def _npy(x: Any) -> bytes:
    buffer = io.BytesIO()
    numpy.save(buffer, numpy.asarray(x), allow_pickle=False)
    return buffer.getvalue()


def _csv(steps: list[Step]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([Step._fields, *steps])
    return text.getvalue().encode()


def _zip(contents: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # without a date: equal samples give equal bytes
    return buffer.getvalue()
