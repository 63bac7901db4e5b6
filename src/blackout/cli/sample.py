"""blackout sample."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blackout.cli.options import (
    Correctors,
    Device,
    Dropout,
    Guidance,
    Label,
    Model,
    Overwrite,
    Precision,
    Sampler,
    Seed,
    Steps,
    Times,
    device_by_name,
)
from blackout.data.suffixes import sequence_kind

if TYPE_CHECKING:
    from torch import Tensor

    from blackout.model import DiffusionModel

_TRAJECTORIES = 8
_FIGURES = (".png", ".pdf", ".svg")
_EACH = 8  # samples of each of several classes
_TEXTS = 4  # samples of text, unless a number is given

Number = Annotated[
    int | None, typer.Option(help="number of samples, of all classes together", show_default="64, or 8 of each class")
]
Observed = Annotated[
    Path | None,
    typer.Option(
        "--observed",
        "--known",
        help="inpainting: file of states (.npy, .npz, .png); text with gaps (.txt)",
        show_default="none",
    ),
]
Gap = Annotated[str, typer.Option(help="infilling: character that marks a gap in the text of --observed")]
Mask = Annotated[
    str | None,
    typer.Option(
        help="inpainting: observed entries: left, right, top, bottom, centre, or a file, true (images: white) where "
        "observed",
        show_default="none",
    ),
]
Resample = Annotated[
    int | None, typer.Option(help="inpainting: repetitions of each step", show_default="7; masked diffusion: 0")
]
Volume = Annotated[
    int | None, typer.Option(help="cubes of this side (.npz), from a model of 2-D slices", show_default="none")
]
BatchSize = Annotated[int, typer.Option(help="samples (of cubes: slices) per pass of the network")]
Out = Annotated[
    Path | None,
    typer.Option(
        help="image grid (.png), arrays (.npz) or folder of images; text (.txt, .fasta)",
        metavar="FILE_OR_DIR",
        show_default="samples.png; text: the terminal; other data: samples.npz; volumes: volumes.npz",
    ),
]
Trajectory = Annotated[
    Path | None,
    typer.Option(
        help=f"also the trajectories of the first {_TRAJECTORIES} samples: figure (.png, .pdf, .svg) or animation "
        "(.gif; .mp4 with ffmpeg)",
        metavar="FILE",
        show_default="none",
    ),
]


def sample(
    source: Model,
    num: Number = None,
    steps: Steps = None,
    sampler: Sampler = "auto",
    correctors: Correctors = 0,
    times: Times = None,
    dropout: Dropout = None,
    seed: Seed = 0,
    label: Label = None,
    guidance: Guidance = 1.0,
    observed: Observed = None,
    mask: Mask = None,
    gap: Gap = "?",
    resample: Resample = None,
    volume: Volume = None,
    batch_size: BatchSize = 64,
    out: Out = None,
    trajectory: Trajectory = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    precision: Precision = "auto",
) -> None:
    """Generate samples. The same command resumes an interrupted job; several processes can share one."""
    from blackout.cli.progress import resumable, sampling_bar
    from blackout.io import load, write_samples
    from blackout.io.samples import check_steps

    where, model = device_by_name(device), load(source)
    images = volume is None and len(model.shape or ()) == 3
    as_text = model.record.alphabet is not None and (out is None or sequence_kind(out) != "")
    if not as_text:
        out = out or Path("samples.png" if images else "samples.npz" if volume is None else "volumes.npz")
    _check_files(out, as_text, trajectory, images, overwrite)
    if dropout is not None:
        model = model.with_sampling(dropout=dropout)
    check_steps(model, steps)
    _note(source, model, dropout, label)
    num, classes, columns = _choose_classes(model, label, _TEXTS if as_text and num is None else num)
    model.to(where, precision)
    options: dict[str, Any] = {
        "num_steps": "auto" if steps is None else steps,
        "sampler": model.sampler("posterior" if volume and sampler == "auto" else sampler, correctors, steps or "auto"),
        "times": times,
        "seed": seed,
        "label": classes,
        "guidance": guidance,
        **_read_inpainting(model, observed, mask, gap),
        "resample": resample,
    }
    if out is None or as_text:
        _write_texts(model, out, num, batch_size, options)
        return
    with resumable(), sampling_bar(num) as progress:
        more: dict[str, Any] = {"volume": volume, "batch_size": batch_size, "columns": columns, "overwrite": overwrite}
        write_samples(model, out, num, **options, **more, progress=progress)
    typer.echo(f"{num} {'sample' if num == 1 else 'samples'}: {out}")
    if trajectory is not None:
        _write_trajectory(model, trajectory, min(num, _TRAJECTORIES), **options)
        typer.echo(f"trajectories: {trajectory}")


def _note(source: str, model: "DiffusionModel", dropout: bool | None, label: str | None) -> None:
    """What the user may want to know about the options that are given, and about those that are not."""
    from blackout.labels import describe_classes

    if dropout and not model.predictor.has_dropout:
        typer.echo(f"blackout: the network of {source} has no dropout; --dropout changes nothing", err=True)
    if model.num_classes and label is None:
        classes = describe_classes(model.num_classes, model.class_names)
        typer.echo(f"blackout: {source} has {classes}; --class chooses one, or each", err=True)


def _choose_classes(
    model: "DiffusionModel", text: str | None, num: int | None
) -> tuple[int, "int | Tensor | None", int | None]:
    """The number of samples, their class or classes, and the images in a row of a grid, if each class has a row."""
    import torch

    numbers = [] if text is None else _class_numbers(model, text)
    if len(numbers) < 2:
        return 64 if num is None else num, numbers[0] if numbers else None, None
    num = _EACH * len(numbers) if num is None else num
    if num < 1 or num % len(numbers):
        raise ValueError(f"--num must be a multiple of {len(numbers)}, the number of classes in --class, got {num}")
    columns = num // len(numbers)
    return num, torch.tensor(numbers).repeat_interleave(columns), columns


def _class_numbers(model: "DiffusionModel", text: str) -> list[int]:
    """The classes of `--class`: one, several with commas between them, or `each`. A name counts before a number."""
    from blackout.labels import by_number, check_number

    names = model.class_names or ()
    if text in names:
        return [names.index(text)]
    if not model.num_classes:
        raise ValueError(f"--class {text} needs a class-conditional model, but this one has no classes")
    if text == "each":
        return list(range(model.num_classes))
    numbers = []
    for part in map(str.strip, text.split(",")):
        is_number = part not in names and part.isdecimal()
        number = int(part) if is_number else by_number("--class", part, model.class_names)
        numbers.append(check_number("--class", number, model.num_classes))
    return numbers


def _write_texts(model: "DiffusionModel", out: Path | None, num: int, batch_size: int, options: dict[str, Any]) -> None:
    from blackout.cli.progress import sampling_bar
    from blackout.io import write_texts
    from blackout.progress import count_samples

    with sampling_bar(num) as progress:
        x = model.sample(num, batch_size=batch_size, callback=count_samples(progress, num), **options)
    assert model.record.alphabet is not None
    write_texts(model.record.alphabet.texts(x.tolist()), out)
    if out is not None:
        typer.echo(f"{num} samples: {out}")


def _read_inpainting(model: "DiffusionModel", observed: Path | None, mask: str | None, gap: str) -> dict[str, Any]:
    from blackout.io import read_gaps, read_mask, read_observed

    if observed is not None and sequence_kind(observed) and model.record.alphabet is not None:
        if mask is not None:
            raise ValueError(f"--mask cannot be given with text, in which {gap!r} marks gaps, got {mask}")
        given, where = read_gaps(observed, model.record.alphabet, (model.shape or (0,))[0], gap)
        return {"observed": given, "mask": where}
    shape, largest, background = model.shape or (), model.max_state, model.record.background
    return {
        "observed": None if observed is None else read_observed(observed, shape, largest, background),
        "mask": None if mask is None else read_mask(mask, shape),
    }


def _check_files(out: Path | None, as_text: bool, path: Path | None, images: bool, overwrite: bool) -> None:
    """Reject, before sampling, files of samples and trajectories that cannot be written or are not ours."""
    from blackout.figures.style import require_matplotlib
    from blackout.files import check_overwrite
    from blackout.io import animation
    from blackout.io.images import check_overwritable

    if out is not None and (as_text or out.suffix.lower() in (".npz", ".png")):
        check_overwritable(out, overwrite)
    if path is None:
        return
    if not images:
        raise ValueError(f"--trajectory needs images, but the samples are not images, got {path}")
    if path.suffix.lower() in animation.SUFFIXES:
        animation.check_path(path)
    elif path.suffix.lower() not in _FIGURES:
        raise ValueError(f"--trajectory must end in {', '.join((*_FIGURES, *animation.SUFFIXES))}, got {path}")
    else:
        require_matplotlib()
    marked = partial(animation.is_marked, path)
    check_overwrite(path, marked, overwrite, "and is no sampling trajectory", "--trajectory", "file")


def _write_trajectory(model: "DiffusionModel", path: Path, num: int, **options: Any) -> None:
    from blackout import figures
    from blackout.atomic import atomic
    from blackout.io import animation

    dims = len(model.shape or ())
    for name, one in {"label": 0, "observed": dims, "mask": dims}.items():
        if getattr(options[name], "ndim", 0) > one:  # one per sample
            options[name] = options[name][:num]
    states = model.sample(num, **options, trajectory=True).cpu()
    if path.suffix.lower() in animation.SUFFIXES:
        animation.write_animation(path, states, model.max_state, mask_state=model.process.mask_state)
        return
    times = model.sampling_times(options["num_steps"], options["times"])
    figure = figures.trajectory(states, times.values, max_state=model.max_state)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as unfinished:
        figure.savefig(unfinished, metadata={"Title": animation.MARK})
