import gzip
import hashlib
import re
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from blackout.data import DATASETS, fetch, open_dataset

FILE = "cifar-10-binary.tar.gz"
CONTENT = bytes(range(256)) * 4000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Files by path; `stop_after` closes connections after so many bytes of the body."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.requests = 0
        self.stop_after: int | None = None
        self.sends_length = True

    def url(self, path: str, sha256: str | None = None) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}" + (f"#sha256={sha256}" if sha256 else "")


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests += 1
        body = self.server.files.get(self.path.removeprefix("/"))
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        if self.server.sends_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.stop_after])

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        server.files["file"] = CONTENT
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.parametrize("sends_length", [True, False])
def test_file_is_downloaded_once(sends_length: bool, server: Server, tmp_path: Path) -> None:
    server.sends_length = sends_length
    seen: list[tuple[str, int, int | None]] = []
    urls = {FILE: server.url("file", SHA256)}
    folder = tmp_path / "new" / "folder"
    files = fetch("cifar10", folder, lambda *step: seen.append(step), urls=urls)
    assert files == [folder / FILE]
    assert files[0].read_bytes() == CONTENT
    assert _names(folder) == ["SHA256SUMS", FILE]
    assert (folder / "SHA256SUMS").read_text() == f"{SHA256}  {FILE}\n"
    assert seen[-1][::2] == (FILE, len(CONTENT) if sends_length else None)
    assert seen[-1][1] >= len(CONTENT)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert len(seen) > 1
    assert fetch("cifar10", folder, urls=urls) == files
    assert server.requests == 1


def test_interrupted_download_leaves_nothing_and_can_be_repeated(server: Server, tmp_path: Path) -> None:
    urls = {FILE: server.url("file", SHA256)}
    server.stop_after = 400_000
    with pytest.raises(ConnectionError, match=rf"cannot download .*400000 bytes read.*; run it again, or put {FILE}"):
        fetch("cifar10", tmp_path, urls=urls)
    assert _names(tmp_path) == []
    server.stop_after = None
    assert fetch("cifar10", tmp_path, urls=urls)[0].read_bytes() == CONTENT


def test_wrong_checksum_leaves_nothing(server: Server, tmp_path: Path) -> None:
    """An address without a checksum needs the official one."""
    expected = rf"{FILE}: SHA256 hash .* expected sha256:c4a38c50\w+ but got {SHA256}"
    with pytest.raises(ValueError, match=expected):
        fetch("cifar10", tmp_path, urls={FILE: server.url("file")})
    assert _names(tmp_path) == []


def test_every_file_has_a_sha256() -> None:
    files = [url for name in DATASETS for url in DATASETS[name].files.values()]
    assert len(files) == 9  # MNIST twice, CIFAR-10
    assert all(re.search(r"#sha256=[0-9a-f]{64}$", url) for url in files)


def test_wrong_file_in_place_is_not_replaced(server: Server, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"mine")
    with pytest.raises(ValueError, match=f"{FILE}: expected sha256 {SHA256}, got .*; remove it to download it again"):
        fetch("cifar10", tmp_path, urls={FILE: server.url("file", SHA256)})
    assert (tmp_path / FILE).read_bytes() == b"mine"


def test_a_file_must_stay_what_it_was_at_its_first_download(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An MD5 can be forged; the SHA-256 of the first download is recorded besides, as sha256sum writes it."""
    md5 = {FILE: f"{server.url('file')}#md5={hashlib.md5(CONTENT).hexdigest()}"}
    fetch("cifar10", tmp_path, urls=md5)
    monkeypatch.chdir(tmp_path)
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], check=True)
    (tmp_path / FILE).write_bytes(b"forged")
    forged = {FILE: f"{server.url('file')}#md5={hashlib.md5(b'forged').hexdigest()}"}
    with pytest.raises(ValueError, match=f"{FILE}: SHA256SUMS has sha256 {SHA256}, got .*; it changed"):
        fetch("cifar10", tmp_path, urls=forged)
    assert server.requests == 1


def test_unreachable_addresses(server: Server, tmp_path: Path) -> None:
    advice = f"run it again, or put {FILE} in {tmp_path} yourself"
    with pytest.raises(ConnectionError, match=f"none: 404 Client Error: Not Found for url: .*; {advice}"):
        fetch("cifar10", tmp_path, urls={FILE: server.url("none", SHA256)})
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(ConnectionError, match=f"cannot download {url}: .*timed out.*; {advice}"):
            fetch("cifar10", tmp_path, urls={FILE: url}, timeout=0.1)
    with pytest.raises(ConnectionError, match=f"cannot download {url}: .*refused; {advice}"):
        fetch("cifar10", tmp_path, urls={FILE: url})
    assert _names(tmp_path) == []


def test_server_that_stops_sending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held: list[socket.socket] = []

        def answer() -> None:
            connection, _ = listener.accept()
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
            held.append(connection)

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        with pytest.raises(ConnectionError, match=r"cannot download .*timed out.*; run it again"):
            fetch("cifar10", tmp_path, urls={FILE: url}, timeout=0.2)
        thread.join()
        held[0].close()


def test_downloaded_data_can_be_opened(server: Server, tmp_path: Path) -> None:
    urls = {}
    for prefix, n in (("train", 5), ("t10k", 3)):
        for kind, header in (("images-idx3", (3, n, 28, 28)), ("labels-idx1", (1, n))):
            body = bytes(n * (784 if header[0] == 3 else 1))
            content = gzip.compress(struct.pack(f">{len(header)}I", 0x800 + header[0], *header[1:]) + body)
            name = f"{prefix}-{kind}-ubyte.gz"
            server.files[name] = content
            urls[name] = server.url(name, hashlib.sha256(content).hexdigest())
    assert len(fetch("mnist-binary", tmp_path, urls=urls)) == 4
    assert len(open_dataset("mnist-binary", folder=tmp_path)) == 5
    assert len(open_dataset(tmp_path, split="test")) == 3


def test_data_sets_without_a_download(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"cannot be downloaded .*put img_align_celeba\.zip .*list_eval_partition\.txt in "
    ):
        fetch("celeba64", tmp_path)
    with pytest.raises(ValueError, match=r"data set must be one of cifar10, .*, got 'imagenet'"):
        fetch("imagenet", tmp_path)
    assert fetch("seven-segment", tmp_path) == []
