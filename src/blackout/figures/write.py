"""The gallery as files: each figure as vectors and as PNG, its caption, and one page of all that are there."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from blackout import figures, validate
from blackout.atomic import write_atomic
from blackout.figures.catalogue import FIGURES
from blackout.figures.context import Studio
from blackout.figures.files import VECTORS
from blackout.figures.style import need_matplotlib

PAGE = "captions.md"


def write(
    out: str | Path,
    names: Sequence[str] = (),
    studio: Studio | None = None,
    *,
    vector: str = "svg",
    say: Callable[[str], None] | None = None,
) -> list[Path]:
    """Draw the figures of those names (default: all) into a folder; the files written.

    For each: NAME.svg or .pdf, NAME.png, and NAME.txt with the caption: what is seen, and the command that draws it
    again. OUT/captions.md shows all figures of the folder, those of earlier calls among them.
    """
    out, studio, say = Path(out), studio or Studio(), say or (lambda line: None)
    names = [validate.choice("name", name, tuple(FIGURES)) for name in dict.fromkeys(names)] or list(FIGURES)
    validate.choice("vector", vector, VECTORS)
    if out.exists() and not out.is_dir():
        raise ValueError(f"out must be a folder, but {out} is a file")
    need_matplotlib()  # known now, not after minutes of sampling
    out.mkdir(parents=True, exist_ok=True)
    files = []
    for name in names:
        plate = FIGURES[name].plate(studio)
        studio.tell(name, 0, 1)
        files += figures.save(plate.draw, out / name, vector)
        caption = out / f"{name}.txt"
        write_atomic(caption, f"{plate.caption}\n\n{command(name, studio, vector)}\n")
        files.append(caption)
        say(f"{name}: {files[-3]}, {files[-2].name}")
    write_atomic(out / PAGE, page(out))
    return [*files, out / PAGE]


def command(name: str, studio: Studio, vector: str = "svg") -> str:
    """The command line that draws a figure again."""
    words = ["blackout", "figures", "--only", name]
    given = {"seed": studio.seed, "num": studio.num, "steps": studio.steps, "vector": vector}
    usual = {"seed": Studio.seed, "num": Studio.num, "steps": Studio.steps, "vector": "svg"}
    for option, value in given.items():
        words += [f"--{option}", str(value)] if value != usual[option] else []
    for option, path in (("data", studio.data), ("results", studio.results)):
        words += [f"--{option}", str(path)] if path is not None else []
    return shlex.join(words)


def page(folder: Path) -> str:
    """All figures of a folder with their captions, as markdown."""
    parts = ["# Figures\n"]
    for name, drawing in FIGURES.items():
        caption = folder / f"{name}.txt"
        if caption.exists():
            seen, again = caption.read_text(encoding="utf-8").rstrip().rsplit("\n\n", 1)
            parts.append(f"## {drawing.title}\n\n![{drawing.title}]({name}.png)\n\n{seen}\n\n`{again}`\n")
    return "\n".join(parts)
