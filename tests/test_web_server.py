import contextlib
import http.client
import itertools
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import processes
from blackout.web import limits
from blackout.web.access import Tokens
from blackout.web.app import CALCULATIONS, STATIC
from blackout.web.models import Catalogue
from pages import IDLE, PRETRAINED, TOKEN, LocalServer, count_model, image_model, until

sys.path.insert(0, str(Path(__file__).parent.parent))

from attack import web as attack

SLOW = {"steps": 1000, "num": 1}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    base = tmp_path_factory.mktemp("models")
    models = {"colour": image_model(3), "classes": image_model(num_classes=3), "slow": image_model(steps=1000)}
    return tuple(str(model.save(base / name)) for name, model in models.items())


@pytest.fixture(scope="module")
def server(folders: tuple[str, ...]) -> Iterator[LocalServer]:
    with LocalServer(folders) as server:
        SLOW["model"] = folders[2]
        server.slow_down(folders[2], 0.01)
        yield server


def test_every_static_file_is_served(server: LocalServer) -> None:
    names = [path.name for path in STATIC.iterdir()]
    assert {"index.html", "style.css", "page.js"} <= set(names)
    kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    for name in ["", *names]:
        with server.open("GET", f"/{name}") as response:
            assert response.status == 200
            assert (response.header("content-type") or "").startswith(kinds[(name or "index.html").split(".")[-1]])
            assert response.read() == (STATIC / (name or "index.html")).read_bytes()


def test_static_files_name_no_other_host() -> None:
    for path in STATIC.iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text
        assert "https:" not in text
        assert 'src="//' not in text


def test_the_browser_may_load_nothing_from_elsewhere(server: LocalServer) -> None:
    for path, cache in (("/", "no-cache"), ("/api/models", "no-store"), ("/nothing", "no-store")):
        with server.open("GET", path) as response:
            response.read()
            policy = response.header("content-security-policy") or ""
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert response.header("x-content-type-options") == "nosniff"
            assert response.header("access-control-allow-origin") is None
            assert response.header("cache-control") == cache


def test_no_other_file_can_be_read(server: LocalServer) -> None:
    for path in (
        "/../app.py",
        "/../../../../../../etc/passwd",
        "/..%2fapp.py",
        "/%2e%2e/app.py",
        "/static/index.html",
        "//etc/passwd",
        "/index.html/../app.py",
        "/page.js%00.css",
        "/..\\app.py",
        "/__init__.py",
    ):
        assert server.request("GET", path) == (404, b"Not Found"), path


def test_no_unlisted_model_can_be_read(server: LocalServer) -> None:
    for name in ("", "..", "/etc", "colour", "cifar10/../mnist-binary", "runs", "mnist-binary\0", "MNIST-BINARY", None):
        status, answer = server.post("/api/sample", {"model": name})
        assert status == 400, name
        assert answer["error"].startswith("model must be one of ")
        if name is not None:
            assert server.request("GET", "/api/model?name=" + name.replace("\0", "%00"))[0] == 400


def test_every_request_needs_the_token(server: LocalServer) -> None:
    paths = ["/", "/nothing", "/api/models", "/api/sample", *(f"/{path.name}" for path in STATIC.iterdir())]
    own = server.cookie("a").partition("=")[2]
    wrong = [
        {"Authorization": value}
        for value in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xe9", TOKEN)
    ] + [
        {"Cookie": f"blackout-{server.port}={value}"}
        for value in ("", TOKEN, own[:-1], f"2{own[1:]}", "1.", "-1.x", "9" * 5000, "\xe9")
    ] + [{"Cookie": f"blackout-1={own}"}]  # fmt: skip
    for path in paths:
        for headers in wrong if path == "/api/models" else wrong[:1]:
            status, answer = server.request("GET", path, **headers)
            message = answer["error"] if path.startswith("/api/") else answer.decode()
            assert (status, message.strip()) == (
                401, "the token is missing or wrong: open the address that `blackout web` printed"
            ), headers  # fmt: skip
    for query in ("", "?token=", "?token=wrong", server.tokens.query()[:-1], server.tokens.query() + "x", "?other=1"):
        assert server.request("GET", f"/{query}", Authorization="")[0] == 401
    assert server.request("POST", "/api/theory", b"x" * 5_000_000, Authorization="")[0] == 401  # the body is not read
    assert server.request("GET", "/api/models", Cookie=f"other; x=1; {server.cookie('a')}")[0] == 200


def test_the_address_with_the_token_sets_a_cookie_and_redirects(server: LocalServer) -> None:
    with server.open("GET", f"/{server.tokens.query()}", Authorization="") as answer:
        assert (answer.status, answer.header("location")) == (303, "/")
        cookie = answer.header("set-cookie") or ""
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    kept = cookie.partition(";")[0]
    assert server.request("GET", "/", Cookie=kept)[0] == 200
    with server.open("GET", f"/{server.tokens.query()}", Cookie=kept) as answer:  # the session stays
        assert (answer.status, answer.header("set-cookie")) == (303, None)
    query = server.tokens.single_use_query()
    assert TOKEN not in query
    assert [server.request("GET", f"/{query}", Authorization="")[0] for _ in range(2)] == [303, 401]


def test_sessions_are_limited_in_number() -> None:
    """However often the page is opened: a browser that has a session keeps its place in the queue."""
    tokens = Tokens("12345678")
    cookies = [tokens.new_cookie() for _ in range(100)]
    assert [tokens.session(cookie) for cookie in cookies] == [*range(1, limits.SESSIONS), *[limits.SESSIONS - 1] * 85]
    assert Tokens("12345678").session(cookies[0]) == 1  # also after a restart with the same token
    assert Tokens("another one").session(cookies[0]) is None
    assert Tokens(None).session("") == 0
    assert Tokens(None).query() == Tokens(None).single_use_query() == ""
    with pytest.raises(ValueError, match="token must have at least 8 characters, got 7"):
        Tokens("1234567")


def test_only_local_requests_are_accepted(server: LocalServer) -> None:
    assert server.listener.getsockname()[0] == "127.0.0.1"
    for host in (
        "evil.example",
        "x@127.0.0.1",
        "127.0.0.1/x",
        f"evil.example:{server.port}",
        "",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "[::2]",
        "[",
        "0.0.0.0",
    ):
        for path in ("/", "/api/models"):
            assert server.request("GET", path, Host=host)[0] == 403, host
    for host in ("localhost:9999", "127.0.0.1", "LOCALHOST", "[::1]:80"):  # an ssh tunnel has a port of its own
        assert server.request("GET", "/api/models", Host=host)[0] == 200, host


def test_requests_of_other_pages_are_rejected(server: LocalServer) -> None:
    own = f"http://127.0.0.1:{server.port}"
    values = {"model": "mnist-binary", "steps": 0}  # invalid, but checked after the origin
    assert server.post("/api/sample", values, Origin=own)[0] == 400
    assert server.post("/api/sample", values)[0] == 400
    for origin in (
        "null",
        "http://evil.example",
        f"https://127.0.0.1:{server.port}",
        "http://127.0.0.1:1",
        own + ".evil.example",
    ):
        expected = (403, {"error": "cross-origin requests are rejected"})
        assert server.post("/api/sample", values, Origin=origin) == expected
    assert server.post("/api/sample", values, Sec_Fetch_Site="cross-site")[0] == 403
    assert server.request("POST", "/api/sample", b"{}", Content_Type="text/plain")[0] == 400


def test_models_are_listed_and_described(server: LocalServer, folders: tuple[str, ...]) -> None:
    answer = server.get("/api/models")
    assert answer["models"] == [*folders, *PRETRAINED]
    assert answer["limits"]["steps"] == limits.STEPS
    colour = server.get(f"/api/model?name={folders[0]}")
    assert [colour[key] for key in ("shape", "max_state", "classes", "bytes")] == [[3, 4, 4], 16, [], 1]
    assert (colour["max_images"], colour["max_steps"]) == (64, 20)
    assert (colour["samplers"]["bridge"], colour["default_sampler"]) == (None, "bridge")
    fitted = server.get("/api/model?name=mnist-binary")
    assert (colour["default_steps"], fitted["default_steps"], fitted["default_sampler"]) == (20, 16, "multistep")
    assert "X_0" in colour["samplers"]["posterior"]
    assert server.get(f"/api/model?name={folders[1]}")["classes"] == ["0", "1", "2"]
    assert server.get("/api/model?name=seven-segment")["classes"] == list("0123456789")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": 1001}, "steps must be at most 1000, got 1001"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"steps": 1.5}, "steps must be an integer, got 1.5"),
        ({"steps": True}, "steps must be an integer, got True"),
        ({"steps": "10"}, "steps must be an integer, got '10'"),
        ({"num": 65}, "num must be at most 64, got 65"),
        ({"num": 0}, "num must be at least 1, got 0"),
        ({"correctors": 11}, "correctors must be at most 10, got 11"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"seed": 2**53}, "seed must be at most 9007199254740991"),
        ({"sampler": "euler"}, "sampler must be one of "),
        ({"sampler": ["bridge"]}, "sampler must be a string, got ['bridge']"),
        ({"sampler": "student"}, "StudentBridge does not fit a head that gives mean"),
        ({"times": "later"}, "time rule must be one of fisher"),
        ({"times": 3}, "times must be a string, got 3"),
        ({"label": 1}, "label must be None: the model has no classes, got 1"),
        ({"label": [1]}, "label must be an integer, got [1]"),
        ({"label": "cat"}, "label must be a class number: the model has no class names, got 'cat'"),
        ({"guidance": 2}, "guidance needs a label"),
        ({"guidance": -1}, "guidance must be at least 0"),
        ({"guidance": 21}, "guidance must be at most 20, got 21"),
        ({"guidance": "much"}, "guidance must be a number, got 'much'"),
        ({"guidance": "2"}, "guidance must be a number, got '2'"),
        ({"guidance": True}, "guidance must be a number, got True"),
        ({"guidance": 10**400}, "guidance must be a number, got 1000"),
        ({"sampler": "x" * 100_000}, "xxx ..."),
        ({"y" * 100_000: 1}, "unknown field 'yyy"),
        ({"resample": 1}, "observed and mask go together, got resample alone"),
        ({"observed": [0] * 784}, "observed and mask go together, got observed alone"),
        ({"observed": [0] * 783, "mask": [0] * 784}, "observed must be a list of 784 integers, got 783 of them"),
        ({"observed": "0", "mask": [0] * 784}, "observed must be a list of 784 integers, got str"),
        ({"observed": [2] * 784, "mask": [0] * 784}, "observed must hold integers from 0 to 1, got 2"),
        ({"observed": [0.5] * 784, "mask": [0] * 784}, "observed must hold integers from 0 to 1, got 0.5"),
        ({"observed": [0] * 784, "mask": [1] * 784}, "mask must leave entries to sample, got all"),
        ({"observed": [0] * 784, "mask": [-1] * 784}, "mask must hold integers from 0 to 1, got -1"),
        ({"steps": 1000, "num": 64}, "network passes, at most"),
        ({"sampler": "exact", "steps": 100, "num": 16}, "use fewer images or steps; `blackout sample` has no limit"),
        ({"device": "cuda"}, "unknown field 'device'"),
        ({"client": "a"}, "unknown field 'client'"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, dict) else "",
)  # fmt: skip
def test_invalid_requests_are_rejected_in_one_line(server: LocalServer, values: dict[str, Any], message: str) -> None:
    status, answer = server.post("/api/sample", {"model": "mnist-binary", **values})
    assert status == 400
    assert message in answer["error"]
    assert "\n" not in answer["error"]
    assert len(answer["error"]) < 1100


def test_malformed_bodies_are_rejected(server: LocalServer) -> None:
    huge = b'{"steps": 1' + b"0" * 5000 + b"}"
    for body in (b"", b"{", b"[]", b"1", b'{"steps": NaN}', b"[" * 100_000, b"\xff\xfe", huge):
        status, answer = server.request("POST", "/api/sample", body, Content_Type="application/json")
        assert status == 400, body[:20]
        assert answer["error"].count("\n") == 0


def test_large_bodies_are_rejected(server: LocalServer) -> None:
    body = b" " * (limits.MESSAGE + 1)
    status, answer = server.request("POST", "/api/sample", body, Content_Type="application/json")
    assert (status, answer["error"]) == (413, "the request is too large: at most 2,097,152 bytes are accepted")
    status, answer = server.request("POST", "/api/upload?model=mnist-binary", b" " * (limits.UPLOAD + 1))
    assert (status, answer["error"]) == (413, "the request is too large: at most 8,388,608 bytes are accepted")


def test_a_disconnected_client_stops_its_job(server: LocalServer) -> None:
    with server.start("a", **SLOW) as running:
        assert [running.next()["event"] for _ in range(4)] == ["queued", "start", "step", "step"]
        with server.start("b", **SLOW) as waiting:
            assert waiting.next() == {"event": "queued", "ahead": 1}
            assert server.queue() == {"running": 1, "waiting": 1}
        assert until(lambda: server.queue() == {"running": 1, "waiting": 0}, 5)
    assert until(lambda: server.queue() == IDLE, 5)


def test_a_job_stops_between_two_network_passes(server: LocalServer) -> None:
    """The exact sampler calls the network hundreds of times in one step."""
    with server.start("a", **{**SLOW, "steps": 1}, sampler="exact") as job:
        assert [job.next()["event"] for _ in range(2)] == ["queued", "start"]
    assert until(lambda: server.queue() == IDLE, 5)


def test_two_clients_are_served_in_turns(server: LocalServer, folders: tuple[str, ...]) -> None:
    """The second job of one client waits for the first one of another, although it was submitted before."""
    small = {"model": folders[1], "steps": 4, "num": 1}
    with server.start("a", **SLOW) as first:
        assert [first.next()["event"] for _ in range(2)] == ["queued", "start"]
        with server.start("a", **small) as second:
            assert second.next()["ahead"] == 1
            with server.start("b", **small) as other:
                assert other.next()["ahead"] == 1
                assert second.next()["ahead"] == 2
                first.close()
                assert other.rest()[-1]["event"] == "done"
                rest = second.rest()
                assert [event["ahead"] for event in rest if event["event"] == "queued"] == [1, 0]
                assert rest[-1]["event"] == "done"


def test_one_client_cannot_fill_the_queue_and_the_server_responds_while_it_samples(server: LocalServer) -> None:
    with server.start("a", **SLOW) as running:
        assert [running.next()["event"] for _ in range(2)] == ["queued", "start"]
        with contextlib.ExitStack() as waiting:
            for _ in range(limits.WAITING):
                waiting.enter_context(server.start("a", **SLOW))
            for _ in range(2):
                status, answer = server.post("/api/sample", SLOW, Cookie=server.cookie("a"))
                assert status == 429
                assert answer["error"].startswith("4 of your jobs are waiting already")
            with server.start("b", **SLOW) as other:
                assert other.next() == {"event": "queued", "ahead": 1}
        for _ in range(20):
            assert server.request("GET", "/")[0] == 200
    assert until(lambda: server.queue() == IDLE, 5)


def test_requests_that_are_not_http(server: LocalServer, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
        raw.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        raw.recv(1000)
    assert server.request("GET", "/", Connection="Upgrade", Upgrade="websocket")[0] == 200
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    for method in ("PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "PATCH"):
        connection.request(method, "/api/sample", headers={"Authorization": f"Bearer {TOKEN}"})
        response = connection.getresponse()
        response.read()
        assert response.status == 405
    connection.close()
    assert server.queue()["running"] == 0
    assert caplog.records == []


def test_hostile_requests(server: LocalServer, caplog: pytest.LogCaptureFixture) -> None:
    """The first of those that `python -m attack web` sends: each has an answer below 500, and nothing stays."""
    for request in itertools.islice(attack.requests(0, TOKEN), 150):
        status, body = attack.send(server.port, request)
        assert attack.problem(request, status, body) == "", request.name
    assert until(lambda: server.queue() == IDLE)
    assert caplog.records == []


def unfinished(server: LocalServer, path: str) -> socket.socket:
    """A connection that has sent a part of its request."""
    raw = socket.create_connection(("127.0.0.1", server.port), timeout=5)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    raw.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{{".encode())
    return raw


def test_a_client_that_disconnects_while_sending_is_not_logged(
    server: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    for path in ("/api/sample", "/api/theory", "/api/upload?model=mnist-binary"):
        unfinished(server, path).close()
    assert server.queue() == IDLE
    assert caplog.records == []


def test_half_sent_requests_time_out_and_hold_nobody_up(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """300 connections that send nothing, a part of a head, or a part of a body; some go on, a byte at a time."""
    monkeypatch.setattr(limits, "SECONDS_FOR_HEAD", 0.5)
    monkeypatch.setattr(limits, "SECONDS_FOR_BODY", 0.7)
    with contextlib.ExitStack() as stack:
        begun = time.monotonic()
        slow = [stack.enter_context(unfinished(server, "/api/theory")) for _ in range(50)]
        for k in range(250):
            raw = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=5))
            raw.sendall([b"", b"GET / HTTP/1.1\r\nHost: local"][k % 2])
            slow.append(raw)
        for _ in range(4):
            assert server.request("GET", "/api/models")[0] == 200  # while they are open
            for raw in slow[-8:]:
                with contextlib.suppress(OSError):
                    raw.sendall(b"a")
            assert len(server.server.server_state.connections) <= limits.CONNECTIONS
            time.sleep(0.1)
        for raw in slow:
            with contextlib.suppress(ConnectionError):
                assert raw.recv(1) == b""
        assert time.monotonic() - begun < 5
    assert until(lambda: not server.server.server_state.connections)
    assert caplog.records == []


def test_a_client_that_does_not_read_is_disconnected(folders: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS_TO_READ", 0.3)
    with LocalServer(folders) as server, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        deaf.connect(("127.0.0.1", server.port))
        request = f"GET /api/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        deaf.sendall(request.encode() * 3000)
        assert until(lambda: len(server.server.server_state.connections) == 1, 5)
        assert until(lambda: not server.server.server_state.connections, 10)


def test_requests_do_not_accumulate_memory() -> None:
    """48 theory requests of 16 clients at once: one thread calculates, and uses the same memory again.

    24 MiB are allowed for the buffers of 16 connections; one thread for each client took 130 MiB.
    """
    code = """if True:
        import json, sys; sys.path.insert(0, sys.argv[1])
        from concurrent.futures import ThreadPoolExecutor
        from pages import LocalServer
        def resident():
            return int(open("/proc/self/statm").read().split()[1]) * 4096
        body = json.dumps({"weights": [1] * 21, "process": "birth-death", "trajectories": 0}).encode()
        def send(_):
            with server.open("POST", "/api/theory", body, Content_Type="application/json") as answer:
                assert answer.status == 200 and len(answer.read()) > 100_000
        with LocalServer() as server, ThreadPoolExecutor(16) as clients:
            for _ in range(4): send(0)
            before = resident()
            list(clients.map(send, range(48)))
            print((resident() - before) >> 20)
    """
    done = processes.run("-c", code, processes.TESTS)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) < 24


def test_a_server_stops_without_messages_whatever_is_open(
    folders: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One client does not read its events, one has not finished its request, one waits for a calculation."""
    called = threading.Event()

    def calculate(_: dict[str, Any]) -> dict[str, Any]:
        called.set()
        time.sleep(1.2)  # longer than the server waits for open connections
        return {}

    monkeypatch.setitem(CALCULATIONS, "slow", calculate)
    with LocalServer(folders) as server, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        deaf.connect(("127.0.0.1", server.port))
        body = json.dumps({"model": folders[0], "steps": 20, "num": 64}).encode()
        head = f"POST /api/sample HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        deaf.sendall(head.encode() + kind.encode() + body)
        assert until(lambda: server.queue()["running"] == 1, 5)
        assert until(lambda: server.queue()["running"] == 0)
        others = [unfinished(server, "/api/sample"), unfinished(server, "/api/slow")]
        others[1].sendall(b" " * 97 + b"}")
        assert called.wait(5)
    for other in others:
        other.close()
    assert caplog.records == []


def test_a_server_that_stops_cancels_its_jobs(folders: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    before = set(threading.enumerate())
    with LocalServer(folders) as server:
        server.slow_down(folders[2], 0.01)
        jobs = [server.start(name, model=folders[2], steps=1000, num=1) for name in "ab"]
        assert [job.next()["event"] for job in jobs] == ["queued", "queued"]
    for job in jobs:
        assert job.rest()[-1] == {"event": "stopped"}
        job.close()
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "sampling"]
    assert capfd.readouterr().err == ""


def test_calculations(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def invert(request: dict[str, Any]) -> dict[str, Any]:
        if request["x"] < 0:
            raise ValueError(f"x must not be\nnegative, got {request['x']}")
        return {"y": 1 / request["x"]}

    monkeypatch.setitem(CALCULATIONS, "inverse", invert)
    with LocalServer() as server:
        assert server.post("/api/inverse", {"x": 4}) == (200, {"y": 0.25})
        assert server.post("/api/inverse", {"x": -1}) == (400, {"error": "x must not be negative, got -1"})
        assert caplog.records == []
        assert server.post("/api/inverse", {"x": 0}) == (
            500, {"error": "the request failed: ZeroDivisionError division by zero"}
        )  # fmt: skip
        assert [record.message for record in caplog.records] == ["a request failed"]
        assert server.request("GET", "/api/inverse")[0] == 405


def test_only_image_models_are_served(tmp_path: Path) -> None:
    folder = str(count_model().save(tmp_path / "counts"))
    with pytest.raises(ValueError, match=r"the page needs an image model, shape \(1 or 3, height, width\), got \[5\]"):
        Catalogue([folder])
    with pytest.raises(ValueError, match="neither a folder nor a pretrained model"):
        Catalogue([str(tmp_path / "none")])
