"""fetch: the official files of a data set, downloaded through pooch and checked before they count."""

from collections.abc import Callable, Mapping
from pathlib import Path

from blackout.atomic import write_atomic
from blackout.data import DATASETS
from blackout.data.source import Source

SUMS = "SHA256SUMS"
"""A file in the folder of downloads, as `sha256sum` writes it: what the files were when they were downloaded."""

Progress = Callable[[str, int, int | None], None]  # file name, bytes so far, bytes in total if the server sends them


def fetch(
    name: str,
    folder: str | Path,
    progress: Progress | None = None,
    *,
    urls: Mapping[str, str] | None = None,
    timeout: float = 30.0,
) -> list[Path]:
    """Download the files of a data set into a folder, where `open_dataset(name, folder=folder)` finds them.

    Parameters
    ----------
    name
        A name of `DATASETS`.
    folder
        Where the files go. Files that are there already are checked and kept. ``SHA256SUMS`` there holds the SHA-256 of
        each file at its first download, which it must keep.
    progress
        Called with the file name, the bytes received and the bytes in total.
    urls
        Addresses of a mirror, by file name. The official checksum is required unless the address ends in one of its
        own, as in ``https://mirror/file#sha256=...``.
    timeout
        Seconds to wait for the server.

    Raises
    ------
    ValueError
        If the data set cannot be downloaded, or a file has the wrong checksum.
    ConnectionError
        If a download fails.
    """
    source: Source = DATASETS[name]
    folder = Path(folder)
    if source.by_hand:
        raise ValueError(f"{name} cannot be downloaded automatically: put {source.by_hand.format(folder=folder)}")
    files = []
    for relative, official in source.files.items():
        file = folder / relative
        url, _, checksum = (urls or {}).get(file.name, official).partition("#")
        _download(url, file, (checksum or official.partition("#")[2]).replace("=", ":"), progress, timeout)
        _check_recorded(folder, relative)
        files.append(file)
    return files


def _check_recorded(folder: Path, relative: str) -> None:
    """Compare a file with its SHA-256 at its first download, or record that."""
    import pooch  # type: ignore[import-untyped]

    sums, found = folder / SUMS, pooch.file_hash(str(folder / relative), "sha256")
    lines = sums.read_text(encoding="utf-8").splitlines() if sums.exists() else []
    recorded = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    if recorded.setdefault(relative, found) != found:
        raise ValueError(
            f"{folder / relative}: {SUMS} has sha256 {recorded[relative]}, got {found}; it changed after its download"
        )
    write_atomic(sums, "".join(f"{digest}  {name}\n" for name, digest in recorded.items()))


def _download(url: str, file: Path, checksum: str, progress: Progress | None, timeout: float) -> None:
    """`checksum` is "algorithm:digest", as in pooch."""
    import pooch
    import requests

    if file.exists():  # pooch would replace it
        algorithm, _, digest = checksum.partition(":")
        found = pooch.file_hash(str(file), algorithm)
        if found != digest:
            raise ValueError(f"{file}: expected {algorithm} {digest}, got {found}; remove it to download it again")
        return
    pooch.get_logger().setLevel("WARNING")
    downloader = pooch.HTTPDownloader(
        progressbar=False if progress is None else _Bar(file.name, progress),
        chunk_size=1 << 18,
        timeout=timeout,
        headers={"Accept-Encoding": "identity"},  # a .gz file must not be unpacked on the way
    )
    try:
        pooch.retrieve(url, checksum, file.name, file.parent, downloader=downloader)
    except requests.RequestException as error:
        raise ConnectionError(
            f"cannot download {url}: {_innermost(error)}; run it again, or put {file.name} in {file.parent} yourself"
        ) from None
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def _innermost(error: BaseException) -> str:
    """The reason without the layers that requests and urllib3 put around it."""
    inner = getattr(error, "reason", None) or next((a for a in error.args if isinstance(a, BaseException)), None)
    return _innermost(inner) if isinstance(inner, BaseException) else str(error)


class _Bar:
    """What pooch expects of a progress bar."""

    def __init__(self, name: str, progress: Progress) -> None:
        self.total = 0  # set by pooch; 0 if the server does not send it
        self._name, self._progress, self._done = name, progress, 0

    def update(self, size: int) -> None:
        """`size` is that of a full chunk, also for the last one."""
        self._done += size
        if self.total:
            self._done = min(self._done, self.total)
        self._progress(self._name, self._done, self.total or None)

    def reset(self) -> None:
        """Called before a last update by the total, which changes nothing here."""

    def close(self) -> None:
        """Nothing to close."""
