"""fetch: the official files of a data set, downloaded through pooch and checked before they count."""

from collections.abc import Callable, Mapping
from pathlib import Path

from blackout.data import DATASETS
from blackout.data.source import Source

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
        Where the files go. Files that are there already are checked and kept.
    progress
        Called with the file name, the bytes received and the bytes in total.
    urls
        Addresses of a mirror, by file name. The official checksum is required unless the address ends in one of its
        own, as in ``https://mirror/file#md5=...``.
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
        url, _, checksum = (urls or {}).get(file.name, official).partition("#md5=")
        _download(url, file, checksum or official.partition("#md5=")[2], progress, timeout)
        files.append(file)
    return files


def _download(url: str, file: Path, md5: str, progress: Progress | None, timeout: float) -> None:
    import pooch  # type: ignore[import-untyped]
    import requests

    if file.exists():  # pooch would replace it
        found = pooch.file_hash(str(file), "md5")
        if found != md5:
            raise ValueError(f"{file}: expected md5 {md5}, got {found}; remove it to download it again")
        return
    pooch.get_logger().setLevel("WARNING")
    downloader = pooch.HTTPDownloader(
        progressbar=False if progress is None else _Bar(file.name, progress),
        chunk_size=1 << 18,
        timeout=timeout,
        headers={"Accept-Encoding": "identity"},  # a .gz file must not be unpacked on the way
    )
    try:
        pooch.retrieve(url, f"md5:{md5}", file.name, file.parent, downloader=downloader)
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
