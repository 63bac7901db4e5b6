import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blackout.web import limits
from blackout.web.app import CALCULATIONS, STATIC
from blackout.web.models import Catalogue
from pages import Page, class_model, until
from test_samples import count_model, picture_model

LONG = {"model": "mnist-binary", "steps": 1000, "num": 1}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    base = tmp_path_factory.mktemp("models")
    return str(picture_model(3).save(base / "colour")), str(class_model().save(base / "classes"))


@pytest.fixture(scope="module")
def page(folders: tuple[str, ...]) -> Iterator[Page]:
    with Page(folders) as page:
        yield page


def test_every_file_of_the_page_is_there(page: Page) -> None:
    names = [path.name for path in STATIC.iterdir()]
    assert {"index.html", "style.css", "page.js"} <= set(names)
    kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    for name in ["", *names]:
        with page.open("GET", f"/{name}") as response:
            assert response.status == 200
            assert (response.header("content-type") or "").startswith(kinds[(name or "index.html").split(".")[-1]])
            assert response.read() == (STATIC / (name or "index.html")).read_bytes()


def test_the_page_names_no_other_host() -> None:
    for path in STATIC.iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text
        assert "https:" not in text
        assert 'src="//' not in text


def test_the_browser_is_told_to_load_nothing_from_elsewhere(page: Page) -> None:
    for path in ("/", "/api/models", "/nothing"):
        with page.open("GET", path) as response:
            response.read()
            policy = response.header("content-security-policy") or ""
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert response.header("x-content-type-options") == "nosniff"
            assert response.header("access-control-allow-origin") is None
            assert response.header("cache-control") == (
                "no-store" if "api" in path else response.header("cache-control")
            )


@pytest.mark.parametrize(
    "path",
    [
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
    ],
)
def test_nothing_else_can_be_read(page: Page, path: str) -> None:
    status, answer = page.ask("GET", path)
    assert status == 404
    assert answer == b"Not Found"


@pytest.mark.parametrize(
    "name", ["", "..", "/etc", "colour", "cifar10/../mnist-binary", "runs", "mnist-binary\0", "MNIST-BINARY", None]
)
def test_no_model_outside_the_list_can_be_read(page: Page, name: str | None) -> None:
    status, answer = page.post("/api/walk", {"model": name, "visitor": "a"})
    assert status == 400
    assert answer["error"].startswith("model must be one of ")
    if name is not None:
        status, answer = page.ask("GET", "/api/model?name=" + name.replace("\0", "%00"))
        assert status == 400


def test_only_this_machine_is_served(page: Page) -> None:
    assert page.listener.getsockname()[0] == "127.0.0.1"
    for host in (
        "evil.example",
        "x@127.0.0.1",
        "127.0.0.1/x",
        f"evil.example:{page.port}",
        "",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "[::2]",
        "[",
        "0.0.0.0",
    ):
        for path in ("/", "/api/models"):
            assert page.ask("GET", path, Host=host)[0] == 403, host
    for host in ("localhost:9999", "127.0.0.1", "LOCALHOST", "[::1]:80"):  # a tunnel has a port of its own
        assert page.ask("GET", "/api/models", Host=host)[0] == 200, host


def test_other_pages_are_refused(page: Page) -> None:
    own = f"http://127.0.0.1:{page.port}"
    order = {"model": "mnist-binary", "steps": 0, "visitor": "a"}  # refused, but only after the guard
    assert page.post("/api/walk", order, Origin=own)[0] == 400
    assert page.post("/api/walk", order)[0] == 400
    for origin in (
        "null",
        "http://evil.example",
        f"https://127.0.0.1:{page.port}",
        "http://127.0.0.1:1",
        own + ".evil.example",
    ):
        status, answer = page.post("/api/walk", order, Origin=origin)
        assert (status, answer) == (403, {"error": "this request comes from another page"})
    assert page.post("/api/walk", order, Sec_Fetch_Site="cross-site")[0] == 403
    assert page.ask("POST", "/api/walk", b"{}", Content_Type="text/plain")[0] == 400


def test_models_are_listed_and_described(page: Page, folders: tuple[str, ...]) -> None:
    _, answer = page.ask("GET", "/api/models")
    assert answer["models"] == [*folders, "cifar10", "mnist-binary", "seven-segment"]
    assert answer["limits"]["steps"] == limits.STEPS
    _, colour = page.ask("GET", f"/api/model?name={folders[0]}")
    assert (colour["shape"], colour["largest"], colour["classes"], colour["bytes"]) == ([3, 4, 4], 16, 0, 1)
    assert (colour["max_images"], colour["max_steps"]) == (64, 20)
    assert colour["samplers"]["bridge"] is None
    assert "law over X_0" in colour["samplers"]["posterior"]
    _, classes = page.ask("GET", f"/api/model?name={folders[1]}")
    assert classes["classes"] == 3


@pytest.mark.parametrize(
    ("order", "message"),
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
        ({"sampler": "euler"}, "sampler must be one of 'bridge'"),
        ({"sampler": ["bridge"]}, "sampler must be one of 'bridge'"),
        ({"sampler": "posterior"}, "sampler 'posterior' needs a model whose head gives a law"),
        ({"label": 1}, "label must be less than the number of classes, 0, got 1"),
        ({"label": [1]}, "label must be an integer, got [1]"),
        ({"guidance": 2}, "guidance needs a label"),
        ({"guidance": -1}, "guidance must be at least 0"),
        ({"guidance": 21}, "guidance must be at most 20, got 21"),
        ({"guidance": "much"}, "guidance must be a number, got 'much'"),
        ({"guidance": "2"}, "guidance must be a number, got '2'"),
        ({"guidance": True}, "guidance must be a number, got True"),
        ({"guidance": 10**400}, "guidance must be a number, got 1000"),
        ({"sampler": "x" * 100_000}, "xxx ..."),
        ({"y" * 100_000: 1}, "a walk has no 'yyy"),
        ({"resample": 1}, "known and mask go together, got resample alone"),
        ({"known": [0] * 784}, "known and mask go together, got known alone"),
        ({"known": [0] * 783, "mask": [0] * 784}, "known must be a list of 784 whole numbers, got 783 of them"),
        ({"known": "0", "mask": [0] * 784}, "known must be a list of 784 whole numbers, got str"),
        ({"known": [2] * 784, "mask": [0] * 784}, "known must hold whole numbers from 0 to 1, got 2"),
        ({"known": [0.5] * 784, "mask": [0] * 784}, "known must hold whole numbers from 0 to 1, got 0.5"),
        ({"known": [0] * 784, "mask": [1] * 784}, "mask must leave something to be drawn"),
        ({"known": [0] * 784, "mask": [-1] * 784}, "mask must hold whole numbers from 0 to 1, got -1"),
        ({"steps": 1000, "num": 64}, "passes of the network, at most"),
        ({"sampler": "exact", "steps": 100, "num": 16}, "take fewer images or steps; `blackout sample` has no limit"),
        ({"device": "cuda"}, "a walk has no 'device'"),
        ({"visitor": ""}, "visitor must be a name of at most 64 characters"),
        ({"visitor": "x" * 65}, "visitor must be a name of at most 64 characters"),
        ({"visitor": None}, "visitor must be a name of at most 64 characters"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, dict) else "",
)  # fmt: skip
def test_what_is_too_much_or_makes_no_sense_is_refused_in_one_line(
    page: Page, order: dict[str, Any], message: str
) -> None:
    status, answer = page.post("/api/walk", {"model": "mnist-binary", "visitor": "a", **order})
    assert status == 400
    assert message in answer["error"]
    assert "\n" not in answer["error"]
    assert len(answer["error"]) < 1100


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"1", b'{"steps": NaN}', b"[" * 100_000, b"\xff\xfe", b'{"steps": 1' + b"0" * 5000 + b"}"],
)
def test_what_is_no_request_is_refused(page: Page, body: bytes) -> None:
    for path in ("/api/walk",):
        status, answer = page.ask("POST", path, body, Content_Type="application/json")
        assert status == 400
        assert answer["error"].count("\n") == 0


def test_too_many_bytes_are_refused(page: Page) -> None:
    status, answer = page.ask("POST", "/api/walk", b" " * (limits.MESSAGE + 1), Content_Type="application/json")
    assert (status, answer["error"]) == (413, "too many bytes were sent: at most 2,097,152 are read")
    status, answer = page.ask("POST", "/api/picture?model=mnist-binary", b" " * (limits.UPLOAD + 1))
    assert (status, answer["error"]) == (413, "too many bytes were sent: at most 8,388,608 are read")


def test_a_closed_tab_stops_its_walk(page: Page) -> None:
    with page.start("a", **LONG) as walk:
        assert [walk.next()["event"] for _ in range(4)] == ["place", "start", "step", "step"]
        assert page.line() == {"running": 1, "waiting": 0}
    assert until(lambda: page.line() == {"running": 0, "waiting": 0}, 5)


def test_a_closed_tab_leaves_the_line(page: Page) -> None:
    with page.start("a", **LONG) as running:
        assert [running.next()["event"] for _ in range(2)] == ["place", "start"]
        with page.start("b", **LONG) as waiting:
            assert waiting.next() == {"event": "place", "ahead": 1}
            assert page.line() == {"running": 1, "waiting": 1}
        assert until(lambda: page.line() == {"running": 1, "waiting": 0}, 5)
    assert until(lambda: page.line()["running"] == 0, 5)


def test_a_walk_by_events_stops_too(page: Page) -> None:
    """The exact sampler asks the network hundreds of times in one step: it is stopped between two passes."""
    with page.start("a", model="mnist-binary", sampler="exact", steps=1) as walk:
        assert [walk.next()["event"] for _ in range(2)] == ["place", "start"]
    assert until(lambda: page.line() == {"running": 0, "waiting": 0}, 5)


def test_two_visitors_take_turns(page: Page) -> None:
    """The second walk of one visitor comes after the first one of the other, though it was asked for before."""
    small = {"model": "mnist-binary", "steps": 4, "num": 1}
    with page.start("a", **LONG) as first:
        assert [first.next()["event"] for _ in range(2)] == ["place", "start"]
        with page.start("a", **small) as second:
            assert second.next()["ahead"] == 1
            with page.start("b", **small) as other:
                assert other.next()["ahead"] == 1
                assert second.next()["ahead"] == 2
                first.close()
                assert other.rest()[-1]["event"] == "done"
                rest = second.rest()
                assert [event["ahead"] for event in rest if event["event"] == "place"] == [1, 0]
                assert rest[-1]["event"] == "done"


def test_one_visitor_cannot_fill_the_line(page: Page) -> None:
    with page.start("a", **LONG) as running:
        assert [running.next()["event"] for _ in range(2)] == ["place", "start"]
        with page.start("a", **LONG), page.start("a", **LONG):
            status, answer = page.post("/api/walk", {**LONG, "visitor": "a"})
            assert status == 429
            assert answer["error"].startswith("2 walks of yours wait already")
    assert until(lambda: page.line() == {"running": 0, "waiting": 0}, 5)


def test_the_server_answers_while_a_walk_runs(page: Page) -> None:
    with page.start("a", **LONG) as running:
        assert running.next()["event"] == "place"
        for _ in range(20):
            assert page.ask("GET", "/")[0] == 200


def test_nonsense_instead_of_http_is_survived(page: Page, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(("127.0.0.1", page.port), timeout=5) as raw:
        raw.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        raw.recv(1000)
    assert page.ask("GET", "/", Connection="Upgrade", Upgrade="websocket")[0] == 200
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=5)
    for method in ("PUT", "DELETE", "OPTIONS"):
        connection.request(method, "/api/walk")
        response = connection.getresponse()
        response.read()
        assert response.status == 405
    connection.close()
    assert page.line()["running"] == 0
    assert caplog.records == []


def unfinished(page: Page, path: str) -> socket.socket:
    """A connection that has sent a part of what it said it would send."""
    raw = socket.create_connection(("127.0.0.1", page.port), timeout=5)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{{"
    raw.sendall(head.encode())
    return raw


def test_who_goes_while_sending_is_forgotten_in_silence(page: Page, caplog: pytest.LogCaptureFixture) -> None:
    for path in ("/api/walk", "/api/theory", "/api/picture?model=mnist-binary"):
        unfinished(page, path).close()
    assert page.line() == {"running": 0, "waiting": 0}
    assert caplog.records == []


def test_a_server_stops_in_silence_whatever_it_is_at(
    folders: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One reads nothing of what is told, one does not finish what was begun, and one waits for an answer."""
    asked = threading.Event()

    def think(_: dict[str, Any]) -> dict[str, Any]:
        asked.set()
        time.sleep(1.5)
        return {}

    monkeypatch.setitem(CALCULATIONS, "thought", think)
    with Page(folders) as page, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        deaf.connect(("127.0.0.1", page.port))
        body = json.dumps({"model": folders[0], "steps": 20, "num": 64, "visitor": "deaf"}).encode()
        head = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        deaf.sendall(b"POST /api/walk HTTP/1.1\r\n" + head.encode() + body)
        assert until(lambda: page.line()["running"] == 1, 5)
        assert until(lambda: page.line()["running"] == 0)
        others = [unfinished(page, "/api/walk"), unfinished(page, "/api/thought")]
        others[1].sendall(b" " * 97 + b"}")
        assert asked.wait(5)
    for other in others:
        other.close()
    assert caplog.records == []


def test_a_server_that_stops_ends_its_walks(capfd: pytest.CaptureFixture[str]) -> None:
    before = set(threading.enumerate())
    with Page() as page:
        walks = [page.start(name, **LONG) for name in "ab"]
        assert [walk.next()["event"] for walk in walks] == ["place", "place"]
    for walk in walks:
        assert walk.rest()[-1] == {"event": "stopped"}
        walk.close()
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "walks"]
    assert capfd.readouterr().err == ""


def test_a_room_that_calculates(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def invert(request: dict[str, Any]) -> dict[str, Any]:
        if request["x"] < 0:
            raise ValueError(f"x must not be\nnegative, got {request['x']}")
        return {"y": 1 / request["x"]}

    monkeypatch.setitem(CALCULATIONS, "inverse", invert)
    with Page() as page:
        assert page.post("/api/inverse", {"x": 4}) == (200, {"y": 0.25})
        assert page.post("/api/inverse", {"x": -1}) == (400, {"error": "x must not be negative, got -1"})
        assert caplog.records == []
        assert page.post("/api/inverse", {"x": 0}) == (
            500, {"error": "the request failed: ZeroDivisionError division by zero"}
        )  # fmt: skip
        assert [record.message for record in caplog.records] == ["a request failed"]
        assert page.ask("GET", "/api/inverse")[0] == 405


def test_models_of_counts_are_refused(tmp_path: Path) -> None:
    folder = str(count_model().save(tmp_path / "counts"))
    with pytest.raises(ValueError, match="the page shows pictures, grey or in colour, but samples have shape"):
        Catalogue([folder])
    with pytest.raises(ValueError, match="neither a folder with a model nor one that ships"):
        Catalogue([str(tmp_path / "none")])
