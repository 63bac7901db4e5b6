"""The figures of the catalogue as files: vector graphics, PNG, captions, and one page of all figures in a folder."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from blackout import validate
from blackout.atomic import write_atomic
from blackout.figures.catalogue import FIGURES
from blackout.figures.context import Context, MissingRunError
from blackout.figures.files import VECTORS, save
from blackout.figures.style import require_matplotlib
from blackout.files import claim

PAGE = "captions.md"


def write(
    out: str | Path,
    names: Sequence[str] = (),
    context: Context | None = None,
    *,
    vector: str = "svg",
    overwrite: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> list[Path]:
    """Draw the figures of those names (default: all whose runs exist) into a folder; returns the files written.

    Writes NAME.svg (or .pdf), NAME.png and NAME.txt, which holds the caption and the command that draws the figure,
    for each name, and captions.md, which shows all figures of the folder, including those of earlier calls. Files of
    these names that no earlier call has written are kept, with a ValueError, unless ``overwrite``. ``report`` is called
    with one line of text per figure.
    """
    out, context = Path(out), context or Context()
    wanted = [FIGURES.check(name) for name in dict.fromkeys(names)]
    validate.choice("vector", vector, VECTORS)
    require_matplotlib()  # before minutes of sampling
    claim(out, [PAGE, *(f"{name}.{kind}" for name in wanted or FIGURES for kind in (vector, "png", "txt"))], overwrite)
    files = []
    for name in wanted or FIGURES:
        try:
            figure = FIGURES.make(name, context)
        except MissingRunError as error:
            if wanted:
                raise
            report(f"{name}: left out: {error}")
            continue
        context.progress(name, 0, 1)
        files += save(figure.draw, out / name, vector)
        files.append(out / f"{name}.txt")
        write_atomic(files[-1], f"{figure.caption}\n\n{command(name, context, vector)}\n")
        report(f"{name}: {files[-3]}, {files[-2].name}")
    write_atomic(out / PAGE, page(out))
    return [*files, out / PAGE]


def command(name: str, context: Context, vector: str = "svg") -> str:
    """The command line that draws a figure."""
    words = ["blackout", "figures", "--only", name]
    for option in ("seed", "num", "steps", "data", "runs", "results"):
        value = getattr(context, option)
        words += [f"--{option}", str(value)] if value != getattr(Context, option) else []
    return shlex.join([*words, "--vector", vector] if vector != VECTORS[0] else words)


def page(folder: Path) -> str:
    """All figures of a folder with their captions, as markdown."""
    parts = ["# Figures\n"]
    for name in FIGURES:
        caption = folder / f"{name}.txt"
        if caption.exists():
            text, line = caption.read_text(encoding="utf-8").rstrip().rsplit("\n\n", 1)
            title = FIGURES.help(name)
            parts.append(f"## {title}\n\n![{title}]({name}.png)\n\n{text}\n\n`{line}`\n")
    return "\n".join(parts)
