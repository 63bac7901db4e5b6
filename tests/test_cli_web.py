import http.client
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import processes
from blackout.web.serve import listen
from pages import count_model, image_model, status


@pytest.mark.parametrize("handler", ["default_int_handler", "SIG_IGN"])  # the latter in background jobs of a script
def test_the_page_is_served_until_interrupted(tmp_path: Path, handler: str) -> None:
    """A separate process prints the address, lists the runs, writes no files, and exits with status 0."""
    image_model().save(tmp_path / "runs" / "mine")
    code = f"import signal; signal.signal(signal.SIGINT, signal.{handler}); from blackout.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "web", "--port", "0", "--no-open"], cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("http://127.0.0.1:")
        port = int(line.split("/")[2].split(":")[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/api/models")
        assert '"runs/mine"' in connection.getresponse().read().decode()
        connection.close()
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=30)
        assert (process.returncode, out, error) == (0, "stopped\n", "")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]
    finally:
        process.kill()
        process.communicate()


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
            (["none"], "none is neither a model folder nor a pretrained model"),
            (["counts"], "counts: the page needs an image model"),
            (["--port", port], f"port {port} is not available: Address already in use; --port 0 uses any"),
            (["--port", "70000"], "port must be from 0 to 65535, got 70000"),
            (["--device", "abacus"], "abacus"),
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
