"""Options that several commands share. Their help lists the choices of the registries."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from blackout.cli.completion import model_names, names_of
from blackout.data import DATASETS
from blackout.registry import Registry
from blackout.sampling import SAMPLERS
from blackout.times import TIME_RULES

if TYPE_CHECKING:
    import torch


def one_of(registry: Registry, *more: str) -> Callable[[str | None], str | None]:
    """A callback for an option whose value must be a name of a registry, or one of `more`."""

    def check(value: str | None) -> str | None:
        names = (*more, *registry)
        if value is not None and value not in names:
            raise typer.BadParameter(f"must be one of {', '.join(names)}, got {value!r}")
        return value

    return check


Model = Annotated[
    str,
    typer.Argument(
        metavar="RUN_OR_NAME",
        help="a run folder, the name of a pretrained model, or hf://USER/NAME (Hugging Face Hub)",
        autocompletion=model_names,
    ),
]
DataSet = Annotated[str, typer.Option(help=f"data set: {', '.join(DATASETS)}", show_default="that of the run or model")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="replace existing files that this command has not written")
]
Steps = Annotated[int | None, typer.Option(help="sampling steps", show_default="250, or the recipe's")]
Dropout = Annotated[
    bool | None,
    typer.Option(
        "--dropout/--no-dropout",
        help="keep the network's dropout on while sampling, as in the authors' code",
        show_default="off, or the recipe's",
    ),
]
Sampler = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=f"auto (the recipe's, or by process and head), {', '.join(SAMPLERS)}",
        callback=one_of(SAMPLERS, "auto"),
        autocompletion=names_of(SAMPLERS, "auto"),
    ),
]
Correctors = Annotated[int, typer.Option(help="corrector steps after each step")]
Times = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"time grid: {', '.join(TIME_RULES)}",
        callback=one_of(TIME_RULES),
        autocompletion=names_of(TIME_RULES),
        show_default="fitted up to 64 steps, if the model has such times; else length below its number of times",
    ),
]
Seed = Annotated[int, typer.Option(help="random seed")]
Label = Annotated[
    str | None,
    typer.Option(
        "--class",
        "--label",
        metavar="NAME",
        help="class by name or number; several, as in cat,dog, or `each`: a row of images for each",
        show_default="none",
    ),
]
Guidance = Annotated[float, typer.Option(help="classifier-free guidance scale (0: unconditional, 1: conditional)")]
Device = Annotated[str, typer.Option(help="auto (CUDA if available), cpu, cuda, cuda:1, ...")]
Precision = Annotated[
    str, typer.Option(help="of the network: float32, bfloat16 (faster, rounded differently), auto: bfloat16 on CUDA")
]
Compile = Annotated[bool, typer.Option("--compile/--no-compile", help="compile the network; for long jobs on CUDA")]


def device_by_name(name: str) -> "torch.device":
    """The device of `--device`."""
    import torch

    from blackout import validate

    if name == "auto":
        # Under torchrun each process has its own GPU.
        name = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    device = validate.device(name)
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu, cuda or cuda:NUMBER, got {name!r}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device {name!r} does not exist; torch finds {torch.cuda.device_count()} CUDA devices")
    return device
