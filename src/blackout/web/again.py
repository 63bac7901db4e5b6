"""What one sees, to take away: pictures, integers, and the command and the program that give them again."""

import csv
import io
import json
import shlex
import zipfile
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from blackout.io import sampler_name
from blackout.io.images import as_bytes, as_picture, grid
from blackout.model import DiffusionModel
from blackout.web.orders import Order

EXPRESSIONS = {
    "bridge": "bo.BinomialBridge({})",
    "bridge-nearest": 'bo.BinomialBridge("nearest"{})',
    "poisson": "bo.TauLeaping({})",
    "poisson-instantaneous": 'bo.TauLeaping("instantaneous"{})',
    "binomial": 'bo.TauLeaping(law="binomial"{})',
    "exact": "bo.Exact({})",
    "posterior": "bo.PosteriorBridge({})",
}
"""The samplers of the command line as one writes them in Python; what is left open is for the correctors."""


class Row(NamedTuple):
    """One step of a walk: its time, and of one image the mean level, and the levels gained and lost."""

    step: int
    time: float
    mean: float
    births: float
    deaths: float


def words(model: DiffusionModel, order: Order, device: str) -> dict[str, str]:
    return {"command": command(order, device), "python": program(model, order)}


def command(order: Order, device: str, out: str = "samples.npz") -> str:
    """The command that gives the same integers; run where the page was started."""
    options = ["--num", order.num, "--steps", order.steps, "--sampler", order.sampler, "--seed", order.seed]
    if order.correctors:
        options += ["--correctors", order.correctors]
    if order.label is not None:
        options += ["--class", order.label]
    if order.guidance != 1:
        options += ["--guidance", order.guidance]
    if order.known is not None:
        options += ["--known", "known.npy", "--mask", "mask.npy"]
    if order.resample is not None:
        options += ["--resample", order.resample]
    if device != "auto":
        options += ["--device", device]
    return shlex.join(["blackout", "sample", order.model, *map(str, options), "--out", out])


def program(model: DiffusionModel, order: Order) -> str:
    """The same in Python."""
    device = "" if model.device.type == "cpu" else f'.to("{model.device}")'
    options = [str(order.num), f"num_steps={order.steps}", f"sampler={expression(model, order)}", f"seed={order.seed}"]
    if order.label is not None:
        options.append(f"label={order.label}")
    if order.guidance != 1:
        options.append(f"guidance={order.guidance}")
    lines = ["import blackout as bo", "", f"model = bo.load({json.dumps(order.model)}){device}"]
    if order.known is not None:
        lines = ["import numpy", "import torch", *lines]
        lines += [f'{name} = torch.from_numpy(numpy.load("{name}.npy"))' for name in ("known", "mask")]
        options += ["known=known", "mask=mask"]
    if order.resample is not None:
        options.append(f"resample={order.resample}")
    return "\n".join([*lines, f"x = model.sample({', '.join(options)})", ""])


def expression(model: DiffusionModel, order: Order) -> str:
    text = EXPRESSIONS[sampler_name(model, order.sampler)]
    correctors = f"corrector_steps={order.correctors}" if order.correctors else ""
    return text.format(correctors if "({}" in text or not correctors else f", {correctors}")


def files_of(model: DiffusionModel, order: Order, x: NDArray[Any], rows: list[Row], device: str) -> dict[str, bytes]:
    """Every file by its name, and all of them as walk.zip."""
    largest = int(x.max()) if model.max_state is None else model.max_state
    files = {"samples.png": _png(grid(as_bytes(x, largest))), "samples.npz": _arrays(x, order)}
    if order.known is not None and order.mask is not None:
        files |= {"known.npy": _npy(order.known.numpy().astype(x.dtype)), "mask.npy": _npy(order.mask.numpy())}
        files["spread.png"] = _png(grid(spread(x)[None]))
    text = words(model, order, device)
    files["walk.csv"] = _table(rows)
    files["again.txt"] = f"{text['command']}\n\n{text['python']}".encode()
    return {**files, "walk.zip": _zip(files)}


def spread(x: NDArray[Any]) -> NDArray[numpy.uint8]:
    """The standard deviation over draws, averaged over channels, (1, height, width): white is the largest there is."""
    deviation = x.astype(numpy.float64).std(axis=0).mean(axis=0, keepdims=True)
    relative: NDArray[numpy.float64] = deviation * (255 / max(float(deviation.max()), 1e-12))
    return numpy.rint(relative).astype(numpy.uint8)


def _png(levels: NDArray[numpy.uint8]) -> bytes:
    buffer = io.BytesIO()
    as_picture(levels).save(buffer, format="png")
    return buffer.getvalue()


def _arrays(x: NDArray[Any], order: Order) -> bytes:
    plain = {"seed": order.seed, "steps": order.steps, "sampler": order.sampler, "model": order.model}
    buffer = io.BytesIO()
    numpy.savez_compressed(buffer, x=x, **{name: numpy.array(value) for name, value in plain.items()})  # type: ignore[arg-type]
    return buffer.getvalue()


def _npy(x: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    numpy.save(buffer, x, allow_pickle=False)
    return buffer.getvalue()


def _table(rows: list[Row]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([Row._fields, *rows])
    return text.getvalue().encode()


def _zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # no date: the same walk, the same bytes
    return buffer.getvalue()
