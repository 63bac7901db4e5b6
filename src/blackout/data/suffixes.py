"""Kinds of sequence files by their suffixes. Importing it needs no torch."""

from pathlib import Path

_SUFFIXES = {".txt": "text", ".fasta": "fasta", ".fa": "fasta", ".fna": "fasta", ".faa": "fasta", ".fastq": "fastq",
             ".fq": "fastq"}  # fmt: skip


def sequence_kind(path: str | Path) -> str:
    """`text`, `fasta` or `fastq`, by the suffix of a file, which may be followed by .gz; empty for other files."""
    path = Path(path)
    return _SUFFIXES.get(Path(path.stem).suffix.lower() if path.suffix == ".gz" else path.suffix.lower(), "")
