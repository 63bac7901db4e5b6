import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

import processes
from blackout.web.serve import listen
from pages import count_model, image_model, status


class Served:
    """`blackout web` in a process of its own."""

    def __init__(self, folder: Path, *words: str, first: str) -> None:
        code = f"{first}\nfrom blackout.cli import main\nmain()"
        self.connections: list[http.client.HTTPConnection] = []
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, "web", "--port", "0", "--no-open", *words], cwd=folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.address = urlsplit(self.line.split()[0])

    def request(self, method: str, path: str, body: str | None = None) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.address.port, timeout=30)
        token = parse_qs(self.address.query).get("token", ["none"])[0]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.connections.append(connection)
        connection.request(method, path, body, headers)
        return connection.getresponse()

    def interrupt(self) -> tuple[float, int, str, str]:
        """Seconds until the end, exit status, standard output and standard error."""
        begun = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        out, error = self.process.communicate(timeout=30)
        return time.monotonic() - begun, self.process.returncode, out, error

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
        for connection in self.connections:
            connection.close()


SLOW = """
import signal, time
from blackout.network.predictor import Predictor
Predictor.forward = lambda *_: time.sleep(60)
"""


@pytest.mark.parametrize("handler", ["default_int_handler", "SIG_IGN"])  # the latter in background jobs of a script
def test_the_page_is_served_until_interrupted(tmp_path: Path, handler: str) -> None:
    """A separate process prints the address, lists the runs, writes no files, and exits with status 0.

    It does so while a network pass of a minute runs, and while a client has sent half a request.
    """
    image_model().save(tmp_path / "runs" / "mine")
    words = ["--token", "my own token"] if handler == "SIG_IGN" else []
    with Served(tmp_path, *words, first=f"{SLOW}signal.signal(signal.SIGINT, signal.{handler})") as served:
        assert served.line.startswith("http://127.0.0.1:")
        query = parse_qs(served.address.query)
        assert query["token"] == ["my own token"] if words else len(query["token"][0]) >= 32
        assert '"runs/mine"' in served.request("GET", "/api/models").read().decode()
        with socket.create_connection(("127.0.0.1", served.address.port), timeout=5) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\nHost:")
            job = served.request("POST", "/api/sample", '{"model": "runs/mine", "steps": 2}')
            assert [json.loads(job.readline())["event"] for _ in range(2)] == ["queued", "start"]
            seconds, *ended = served.interrupt()
        assert json.loads(job.readline())["event"] == "stopped"
        assert ended == [0, "stopped\n", ""]
        assert seconds < 2
        assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


def test_the_default_port_or_a_free_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with listen(0) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("blackout.web.serve.PORT", port)
        with listen(None) as other:
            assert other.getsockname()[0] == "127.0.0.1"
            assert other.getsockname()[1] != port
    with listen(None) as default:
        assert default.getsockname()[1] == port


def test_bad_input_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    count_model().save("counts")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for words, message in (
            (["none"], "none is neither a folder nor a pretrained model (those are: cifar10, "),
            (["."], ". holds no model: model.json cannot be read, No such file or directory"),
            (["counts"], "counts: the page needs an image model"),
            (["--port", port], f"port {port} is not available: Address already in use; --port 0 uses any"),
            (["--port", "70000"], "port must be from 0 to 65535, got 70000"),
            (["--device", "abacus"], "abacus"),
            (["--token", "short"], "token must have at least 8 characters, got 5"),
            (["--token", "long enough", "--no-token"], "--token and --no-token exclude each other, got both"),
        ):
            assert status(["web", "--no-open", *words], monkeypatch) == 2
            error = capsys.readouterr().err
            assert message in error
            assert error.count("\n") == 1


def test_missing_packages_are_named() -> None:
    """In a separate process, because modules imported a second time would break other tests."""
    code = "import sys; sys.modules['uvicorn'] = None; from blackout.cli import main; main()"
    done = processes.run("-c", code, "web", "--no-open")
    assert done.returncode == 1
    assert done.stderr == "blackout: the page needs uvicorn: pip install 'blackout-diffusion[web]'\n"
