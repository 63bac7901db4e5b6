"""Files to download, and the command and Python code that reproduce the samples."""

import csv
import functools
import io
import json
import shlex
import zipfile
from collections.abc import Callable
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
        steps = f"corrector_steps={request.correctors}, num_steps={request.steps}"
        values["sampler"] = f"model.sampler({values['sampler']}, {steps})"
    arguments = "".join(f", {name}={value}" for name, value in values.items())
    return "\n".join([*lines, f"x = model.sample({request.num}{arguments})", ""])


def files(
    model: DiffusionModel, request: SamplingRequest, x: NDArray[Any], steps: list[Step], device: str
) -> dict[str, bytes]:
    """Contents of all files by name; samples.zip holds the others."""
    max_state = int(x.max()) if model.max_state is None else model.max_state
    about: dict[str, Any] = {
        name: numpy.array(getattr(request, name)) for name in ("seed", "steps", "sampler", "model")
    }
    contents = {
        "samples.png": _png(as_bytes(x, max_state)),
        "samples.npz": _written(lambda file: numpy.savez_compressed(file, x=x, **about)),
    }
    if request.observed is not None and request.mask is not None:
        for name, array in (("observed", request.observed.numpy().astype(x.dtype)), ("mask", request.mask.numpy())):
            contents[_FILES[name]] = _written(functools.partial(numpy.save, arr=array, allow_pickle=False))
        contents["std.png"] = _png(standard_deviation(x)[None])
    table = io.StringIO()
    csv.writer(table).writerows([Step._fields, *steps])
    contents["steps.csv"] = table.getvalue().encode()
    contents["reproduce.py"] = f"# {command(request, device)}\n\n{python(model, request)}".encode()
    return {**contents, "samples.zip": _written(lambda file: _zip(file, contents))}


def standard_deviation(x: NDArray[Any]) -> NDArray[numpy.uint8]:
    """The standard deviation over samples, averaged over channels, (1, height, width); 255 is the largest of them."""
    std = x.astype(numpy.float64).std(axis=0).mean(axis=0, keepdims=True)
    relative: NDArray[numpy.float64] = std * (255 / max(float(std.max()), 1e-12))
    return numpy.rint(relative).astype(numpy.uint8)


def _png(images: NDArray[numpy.uint8]) -> bytes:
    return _written(lambda file: as_image(image_grid(images)).save(file, format="png"))


def _zip(file: io.BytesIO, contents: dict[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # without a date: equal samples give equal bytes


def _written(write: Callable[[io.BytesIO], Any]) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()
