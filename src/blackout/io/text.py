"""Samples of sequences as text: to the terminal, .txt or .fasta; and text with gaps that are filled."""

import sys
from pathlib import Path

import torch
from torch import Tensor

from blackout.atomic import write_atomic
from blackout.data import Alphabet, sequence_kind

_LINE = 60  # letters in a line of a FASTA file
_BETWEEN = "-" * 8


def write_texts(texts: list[str], out: Path | None) -> None:
    """Write texts to the terminal (None), to a .fasta file, or to a .txt file with a line of dashes between them."""
    if out is not None and sequence_kind(out) == "fasta":
        lines = []
        for number, text in enumerate(texts):
            lines += [f">sample_{number}", *(text[k : k + _LINE] for k in range(0, len(text), _LINE))]
        write_atomic(out, "\n".join(lines) + "\n")
        return
    whole = f"\n{_BETWEEN}\n".join(texts) + "\n"
    if out is None:
        sys.stdout.write(whole)
    else:
        write_atomic(out, whole)


def read_gaps(path: Path, alphabet: Alphabet, length: int, gap: str) -> tuple[Tensor, Tensor]:
    """Observed labels, shape (length,), and where they are: text in which a character marks each gap.

    A text that is shorter than a sample is continued.

    Raises
    ------
    ValueError
        If the text is longer than a sample, or has characters that the alphabet does not have.
    """
    if len(gap) != 1:
        raise ValueError(f"gap must be one character, got {gap!r}")
    if alphabet.kind == "tokens":
        raise ValueError(f"observed: {path}: gaps need an alphabet of characters or bytes, got tokens")
    try:
        text = path.read_text(encoding="utf-8").removesuffix("\n")
        pieces = [alphabet.encode(piece) for piece in text.split(gap)]
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"observed: {path}: {error}") from None
    labels: list[int] = []
    for number, piece in enumerate(pieces):
        labels += [-1] * (number > 0) + piece
    if len(labels) > length:
        raise ValueError(f"observed: {path}: at most {length} characters, the length of a sample, got {len(labels)}")
    observed = torch.tensor(labels + [-1] * (length - len(labels)))
    return observed.clamp(min=0), observed >= 0
