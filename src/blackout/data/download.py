"""Official files from where they are published: resumed where they stopped, and checked before they count."""

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from blackout.data.celeba import ARCHIVE, PARTITION
from blackout.data.volumes import BENTHEIMER, SOURCE

Progress = Callable[[str, int, int | None], None]  # file name, bytes so far, bytes in all if the server says

_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_URLS = {
    "cifar10": {
        "cifar-10-binary.tar.gz": "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
        "#md5=c32a1d4ab5d03f1284b67883e8d87530"
    },
    "mnist": {
        "mnist/train-images-idx3-ubyte.gz": f"{_MNIST}train-images-idx3-ubyte.gz#md5=f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "mnist/train-labels-idx1-ubyte.gz": f"{_MNIST}train-labels-idx1-ubyte.gz#md5=d53e105ee54ea40749a09fcbcd1e9432",
        "mnist/t10k-images-idx3-ubyte.gz": f"{_MNIST}t10k-images-idx3-ubyte.gz#md5=9fb629c4189551a2d022fa330f9573f3",
        "mnist/t10k-labels-idx1-ubyte.gz": f"{_MNIST}t10k-labels-idx1-ubyte.gz#md5=ec29112dd5afa0611ce80d1b7f02629c",
    },
}
_URLS |= {"mnist-binary": _URLS["mnist"], "digits": {}}  # digits are computed
_CHUNK = 1 << 18


def fetch(
    name: str,
    folder: str | Path,
    progress: Progress | None = None,
    *,
    urls: Mapping[str, str] | None = None,
    timeout: float = 30.0,
) -> list[Path]:
    """Download the files of a data set into a folder, as `open_dataset(name, folder=folder)` expects them there.

    `urls` replaces addresses by file name, for a mirror. The official checksum holds unless the address ends in one of
    its own, as in `https://mirror/file#md5=...`.
    """
    folder = Path(folder)
    if name == "celeba64":
        raise ValueError(
            f"celeba64 is published by hand only, on https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html: "
            f"put {ARCHIVE} (or its folder) and {PARTITION} in {folder}"
        )
    if name == "bentheimer":
        raise ValueError(f"bentheimer has no download of its own: put {BENTHEIMER} in {folder}; {SOURCE}")
    if name not in _URLS:
        raise ValueError(f"name must be one of {', '.join(map(repr, _URLS))}, got {name!r}")
    files = []
    for relative, official in _URLS[name].items():
        file = folder / relative
        url, _, checksum = (urls or {}).get(file.name, official).partition("#md5=")
        download(url, file, checksum or official.partition("#md5=")[2], progress, timeout=timeout)
        files.append(file)
    return files


def download(url: str, file: Path, md5: str, progress: Progress | None = None, *, timeout: float = 30.0) -> None:
    """One file, by way of `file`.part, which a later call continues."""
    if file.exists():
        _check(file, md5, "remove it to fetch it again")
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.part")
    start = part.stat().st_size if part.exists() else 0
    response = _open(url, start, timeout, f"put {file.name} in {file.parent} yourself")
    if response is not None:
        with response:
            _receive(response, url, part, start, progress)
    try:
        _check(part, md5, "what was received has been removed")
    except ValueError:
        part.unlink()
        raise
    os.replace(part, file)


def _open(url: str, start: int, timeout: float, advice: str) -> http.client.HTTPResponse | None:
    """What lies from `start` on, or all of it, as the server pleases; None if there is nothing beyond."""
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and start:
            return None
        raise ConnectionError(f"{url}: HTTP {error.code} {error.reason}; {advice}") from None
    except urllib.error.URLError as error:
        raise ConnectionError(f"cannot reach {url}: {error.reason}; {advice}") from None
    except (http.client.HTTPException, OSError) as error:
        raise ConnectionError(f"cannot reach {url}: {error}; {advice}") from None
    return response


def _receive(response: http.client.HTTPResponse, url: str, part: Path, start: int, progress: Progress | None) -> None:
    resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
    done = start if resumed else 0
    length = response.headers.get("Content-Length")
    total = None if length is None else done + int(length)
    with part.open("ab" if resumed else "wb") as out:
        while chunk := _read(response, url):
            out.write(chunk)
            done += len(chunk)
            if progress is not None:
                progress(part.name.removesuffix(".part"), done, total)
    if total is not None and done < total:
        raise ConnectionError(f"{url}: stopped after {done} of {total} bytes; fetch again to continue")


def _read(response: http.client.HTTPResponse, url: str) -> bytes:
    try:
        return response.read(_CHUNK)
    except http.client.IncompleteRead as error:
        return error.partial
    except (http.client.HTTPException, OSError) as error:
        raise ConnectionError(f"{url}: stopped: {error}; fetch again to continue") from None


def _check(file: Path, md5: str, consequence: str) -> None:
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != md5:
        raise ValueError(f"{file}: expected md5 {md5}, got {found}; {consequence}")
