"""Sequences of labels from text, FASTA and FASTQ files, and from lists; and the source code of Python."""

import gzip
import hashlib
import itertools
import platform
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from blackout import validate
from blackout.data.alphabet import Alphabet
from blackout.data.arrays import Dataset
from blackout.data.source import Source
from blackout.data.suffixes import sequence_kind
from blackout.process.substitution import NUCLEOTIDES

LENGTH = 256
_HELD_OUT = 10  # one part of a text in so many is held out
_CHLOROPLAST = Path(__file__).parent / "chloroplast.fasta.gz"
_MOSTLY = 0.9  # share of nucleotides from which sequences are DNA or RNA
_WHOLE = 0.95  # share of letters in pieces of full length from which shorter ones are left out
_LEFT_OUT = ("test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__")


def read_sequences(
    path: str | Path, *, split: str = "train", length: int = 0, alphabet: str | Alphabet = "characters"
) -> Dataset:
    """Sequences from a .txt, FASTA or FASTQ file, which may be compressed (.gz).

    Parameters
    ----------
    split
        "train" or "test": the last tenth of a text, or of the sequences of a file, is held out.
    length
        Labels of a sequence; 0: 256, or for FASTA and FASTQ that of the longest sequence, up to 512. Longer ones are
        cut. Ends and short sequences of FASTA and FASTQ are padded, unless they are less than a twentieth of a file
        whose sequences are cut, such as a genome: then they are left out.
    alphabet
        An `Alphabet`, or of text: `characters`, `bytes` or a tokenizer's .json file. Of DNA and RNA it is ACGT, and
        sequences with other letters are left out.
    """
    path, length = Path(path), validate.integer("length", length, 0)
    validate.choice("split", split, ("train", "test"))
    try:
        if sequence_kind(path) == "text":
            return _cut_text(path.stem, _read(path), split, length or LENGTH, alphabet)
        records = [letters.upper() for letters in _records(path)]
        return _cut_records(path.stem, records, split, length, alphabet)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def from_sequences(
    sequences: Sequence[Sequence[int]],
    *,
    max_state: int | None = None,
    length: int = 0,
    name: str = "sequences",
    **more: Any,
) -> Dataset:
    """A Dataset of sequences of labels of different lengths, padded with the label `max_state` + 1.

    Padding is part of neither loss nor bound. `max_state` defaults to the largest label, and `length` to that of the
    longest sequence; `more` are further fields.
    """
    if not len(sequences) or not all(len(sequence) for sequence in sequences):
        raise ValueError("sequences must hold at least one label each, and there must be one")
    largest = max(max(int(label) for label in sequence) for sequence in sequences)
    pad = (largest if max_state is None else max_state) + 1
    if largest >= pad:
        raise ValueError(f"max_state must be at least {largest}, the largest label, got {max_state}")
    rows = [torch.as_tensor(sequence, dtype=torch.int64) for sequence in sequences]
    x = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)
    longest = x.shape[1]
    if 0 < validate.integer("length", length, 0) < longest:
        raise ValueError(f"length must be at least {longest}, that of the longest sequence, got {length}")
    x = torch.nn.functional.pad(x, (0, max(length - longest, 0)), value=pad)
    return Dataset(x=_small(x, pad + 1), name=name, max_state=pad, pad_state=pad, **more)


def read_stdlib(folder: Any = None, *, split: str = "train", length: int = 0) -> Dataset:
    """The source code of the Python that runs this, without its tests, in sequences of characters.

    A file belongs to the test split by a hash of its path, one in ten, so that all versions of Python have one split.
    The alphabet is printable ASCII, line ends and tabulators; other characters become one symbol.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(path.relative_to(root) for path in root.rglob("*.py"))
    wanted = [path for path in files if not set(path.parts) & set(_LEFT_OUT) and "config-" not in str(path)]
    test = validate.choice("split", split, ("train", "test")) == "test"
    chosen = [
        path for path in wanted if is_held_out(path.as_posix()) == test and not path.name.startswith("_sysconfig")
    ]
    text = "".join((root / path).read_text(encoding="utf-8", errors="replace") for path in chosen)
    symbols = Alphabet.of_text("\t\n" + "".join(map(chr, range(32, 127))))
    version = ".".join(platform.python_version_tuple()[:2])
    return _whole(f"stdlib-{version}", text, length or LENGTH, symbols)


def read_chloroplast(folder: Any = None, *, split: str = "train", length: int = 0) -> Dataset:
    """The chloroplast genome of Arabidopsis thaliana, whose last tenth is held out, in sequences of nucleotides.

    RefSeq NC_000932.1 (Sato et al., 1999), without its last 26,264 bases: the second inverted repeat, which would show
    held-out bases to the training. NCBI places no restrictions on the use of its sequences.
    """
    return replace(read_sequences(_CHLOROPLAST, split=split, length=length), name="chloroplast")


STDLIB = Source(read=read_stdlib)
CHLOROPLAST = Source(read=read_chloroplast)


def is_held_out(path: str) -> bool:
    """Whether a file of the standard library, by its relative path, belongs to the test split."""
    return int.from_bytes(hashlib.sha256(path.encode()).digest()[:4], "big") % _HELD_OUT == 0


def _cut_text(name: str, text: str, split: str, length: int, alphabet: str | Alphabet) -> Dataset:
    symbols = Alphabet.by_name(alphabet, text) if isinstance(alphabet, str) else alphabet
    border = len(text) - len(text) // _HELD_OUT
    return _whole(name, text[:border] if split == "train" else text[border:], length, symbols)


def _whole(name: str, text: str, length: int, alphabet: Alphabet) -> Dataset:
    """A text in sequences of one length, one after the other; the rest is left out."""
    labels = torch.tensor(alphabet.encode(text), dtype=torch.int64)
    rows = len(labels) // length
    if not rows:
        raise ValueError(f"text must have at least {length} labels, the length of a sequence, got {len(labels)}")
    x = _small(labels[: rows * length].reshape(rows, length), len(alphabet))
    return Dataset(x=x, name=name, max_state=len(alphabet) - 1, alphabet=alphabet)


def _cut_records(name: str, records: list[str], split: str, length: int, given: str | Alphabet) -> Dataset:
    letters = "".join(records)
    if not letters:
        raise ValueError("expected at least one sequence, got none")
    alphabet, share = given, sum(map(letters.count, "ACGTU")) / len(letters)
    if isinstance(alphabet, str):
        mostly = share >= _MOSTLY
        alphabet = Alphabet("characters", NUCLEOTIDES) if mostly else Alphabet.of_text(letters, unknown=False)
    if alphabet.symbols == NUCLEOTIDES:
        records = [record.replace("U", "T") for record in records]
    border = len(records) - len(records) // _HELD_OUT
    if len(records) == 1:  # a genome: its end is held out
        border, records = 1, [records[0][: -(len(letters) // _HELD_OUT)], records[0][-(len(letters) // _HELD_OUT) :]]
    size, fixed = _piece_size(records, length)
    part = records[:border] if split == "train" else records[border:]
    pieces = [record[k : k + size] for record in part for k in range(0, len(record), size)]
    known = [piece for piece in pieces if not set(piece) - set(alphabet.symbols)]
    kept = [piece for piece in known if len(piece) == size or not fixed]
    if not kept:
        raise ValueError(f"no sequence of the {split} split has the length {size} and known letters alone")
    labels, more = [alphabet.encode(piece) for piece in kept], dict[str, Any](name=name, alphabet=alphabet)
    left_out = (
        (len(pieces) - len(known), f"because of other letters than {alphabet.symbols}"),
        (len(known) - len(kept), f"because they are shorter than {size}"),
    )
    notes = tuple(f"{number:,} of {len(pieces):,} pieces were left out {why}" for number, why in left_out if number)
    if not fixed:
        return from_sequences(labels, max_state=len(alphabet) - 1, length=size, notes=notes, **more)
    return Dataset(x=_small(torch.tensor(labels), len(alphabet)), max_state=len(alphabet) - 1, notes=notes, **more)


def _piece_size(records: list[str], length: int) -> tuple[int, bool]:
    """The length of the pieces that sequences are cut into, and whether shorter ones are left out or padded."""
    longest, total = max(map(len, records)), sum(map(len, records))
    is_cut = longest > (length or 2 * LENGTH)
    size = length or (LENGTH if is_cut else longest)
    share = sum(len(record) // size for record in records) * size / total
    return size, share == 1 or (is_cut and share >= _WHOLE)


def _small(x: torch.Tensor, states: int) -> torch.Tensor:
    return x.to(torch.uint8 if states < 255 else torch.int32)


def _read(path: Path) -> str:
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return data.decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"not text in UTF-8: {error}") from None


def _records(path: Path) -> Iterator[str]:
    """The sequences of a FASTA file, or of a FASTQ file with four lines a read."""
    lines = [line.strip() for line in _read(path).splitlines()]
    if sequence_kind(path) == "fastq":
        if any(not line.startswith("@") for line in lines[::4] if line):
            raise ValueError("a FASTQ file must have four lines a read, the first of which starts with @")
        yield from lines[1::4]
        return
    if not any(line.startswith(">") for line in lines):
        raise ValueError("a FASTA file must have lines that start with >, got none")
    for is_name, group in itertools.groupby(lines, lambda line: line.startswith(">")):
        if not is_name and (sequence := "".join(group)):
            yield sequence
