"""What Python says of cells, in the words of the command line."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import typer

_ARGUMENTS = re.compile(
    r"(?<![\w-])(layer|library|label|guidance|mask|draws|resample|transpose|num|num_steps|seed|share|batch_size|width)"
    r"(?= (?:must|needs|is for|is outside|lacks))"
)
_RENAMED = {"num_steps": "steps", "share": "held-out"}
_PHRASES = {
    "such as adata.layers['counts'] or adata.raw": "such as --layer counts or --layer raw of an .h5ad file",
    "mask.to_numpy() goes by position": "an array, .npy or .npz, goes by position",
    "empty='drop' leaves": "--empty drop leaves",
    ": CountModel(library='conditioned')": ": `blackout train counts --library conditioned`",
    "such as CountModel(labels='cell_type')": "as `blackout train counts --labels cell_type` makes one",
}


def in_options(text: str) -> str:
    """The same with arguments called as the options are."""
    for python, words in _PHRASES.items():
        text = text.replace(python, words)
    return _ARGUMENTS.sub(lambda found: "--" + _RENAMED.get(found[1], found[1]).replace("_", "-"), text)


@contextmanager
def as_options() -> Iterator[None]:
    """Refusals in the words of the command line, and each warning as one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)  # each once, however many batches there are
        warnings.showwarning = lambda message, *_, **__: typer.echo(f"blackout: {in_options(str(message))}", err=True)
        try:
            yield
        except ValueError as error:
            raise ValueError(in_options(str(error))) from None
