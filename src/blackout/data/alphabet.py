"""Alphabet: labels and the text that they stand for. Saved with a model, so that its samples are text again."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

UNKNOWN = "\N{REPLACEMENT CHARACTER}"
"""The symbol of an alphabet of characters that stands for all others."""


@dataclass(frozen=True)
class Alphabet:
    """What labels stand for: characters, the 256 bytes of UTF-8, or the tokens of a file of the package `tokenizers`.

    Parameters
    ----------
    kind
        "characters", "bytes" or "tokens".
    symbols
        The characters, in the order of their labels.
    tokens
        Content of the tokenizer's file, JSON.

    Examples
    --------
    >>> alphabet = Alphabet.of_text("banana")
    >>> alphabet.encode("ban?"), alphabet.decode([1, 0, 2])
    ([1, 0, 2, 3], 'ban')
    """

    kind: str = "characters"
    symbols: str = ""
    tokens: str = ""

    @staticmethod
    def of_text(text: str, unknown: bool = True) -> "Alphabet":
        """The characters of a text, sorted; with `unknown`, one more symbol stands for all others."""
        found = sorted(set(text) - {UNKNOWN})
        return Alphabet("characters", "".join(found) + (UNKNOWN if unknown else ""))

    @staticmethod
    def by_name(name: str, text: str) -> "Alphabet":
        """`characters` (those of the text), `bytes`, or a tokenizer's .json file."""
        if name in ("characters", "bytes"):
            return Alphabet.of_text(text) if name == "characters" else Alphabet("bytes")
        path = Path(name)
        if path.suffix != ".json" or not path.is_file():
            raise ValueError(f"alphabet must be characters, bytes or a tokenizer's .json file, got {name!r}")
        alphabet = Alphabet("tokens", tokens=path.read_text(encoding="utf-8"))
        len(alphabet)  # raises, with the reason, for a file that is none
        return alphabet

    def __len__(self) -> int:
        if self.kind == "tokens":
            return int(self._tokenizer().get_vocab_size())
        return 256 if self.kind == "bytes" else len(self.symbols)

    def encode(self, text: str) -> list[int]:
        """The labels of a text; ValueError for a character that the alphabet does not have."""
        if self.kind == "tokens":
            return list(self._tokenizer().encode(text).ids)
        if self.kind == "bytes":
            return list(text.encode())
        known = {symbol: label for label, symbol in enumerate(self.symbols)}
        other = known.get(UNKNOWN)
        if other is None and (strange := sorted(set(text) - set(known))):
            raise ValueError(f"text must hold the characters {self.symbols!r} alone, got {strange[0]!r}")
        return [known.get(character, other) for character in text]  # type: ignore[misc]

    def decode(self, labels: Iterable[int]) -> str:
        """The text of labels; those beyond the alphabet, padding and mask, are left out."""
        to_list = getattr(labels, "tolist", None)  # of tensors and arrays, a hundred times faster than their items
        size = len(self)
        kept = [label for label in (map(int, labels) if to_list is None else to_list()) if label < size]
        if self.kind == "tokens":
            return str(self._tokenizer().decode(kept, skip_special_tokens=False))
        if self.kind == "bytes":
            return bytes(kept).decode(errors="replace")
        return "".join(self.symbols[label] for label in kept)

    def texts(self, x: Iterable[Sequence[int]]) -> list[str]:
        """The text of each row."""
        return [self.decode(row) for row in x]

    def config(self) -> dict[str, Any]:
        """The values as plain JSON."""
        return {name: value for name, value in vars(self).items() if value}

    def _tokenizer(self) -> Any:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise ValueError(
                "this alphabet needs the package tokenizers: pip install 'blackout-diffusion[text]'"
            ) from None
        try:
            return Tokenizer.from_str(self.tokens)
        except Exception as error:  # the package raises Exception itself
            raise ValueError(f"alphabet must be a tokenizer's .json file: {error}") from None
