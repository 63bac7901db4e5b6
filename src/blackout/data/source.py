"""Source: how a data set of `DATASETS` is found, downloaded and read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from blackout.data.arrays import Dataset


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data set by name.

    Parameters
    ----------
    read
        `read(folder, *, split, ...)` returns a Dataset; its keyword arguments are the options of `open_dataset`.
    find
        `find(path)` is the file or folder that `path` is or holds, or None. Not given for data that need no files.
    files
        Files to download, by their path in the data folder, as ``"url#sha256=checksum"``.
    by_hand
        How to get the files, if they cannot be downloaded.
    """

    read: Callable[..., Dataset]
    find: Callable[[Path], Path | None] | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    by_hand: str = ""

    def advice(self, name: str) -> str:
        """How to get the files of the data set of this name."""
        return f"`blackout data {name}` {'lists the files to put there' if self.by_hand else 'downloads it'}"

    def has_files(self, folder: Path) -> bool:
        """Whether a folder holds the files, or none are needed."""
        return self.find is None or self.find(folder) is not None
