"""Hostile requests to the server of `blackout web`, which must answer each of them with a status below 500."""

import io
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from PIL import Image

from attack.findings import Failure, Tally, numbers
from attack.world import World

_SECONDS = 30.0  # for one response
_TO_STOP = 2.0  # seconds
_TOKEN = "of the attack"
_SAMPLE = {"model": "seven-segment", "steps": 2, "num": 1, "seed": 0}
_THEORY = {"weights": [1] * 21, "k": 3, "trajectories": 1}
_NAMES = (
    *_SAMPLE,
    *_THEORY,
    "sampler",
    "times",
    "correctors",
    "label",
    "guidance",
    "observed",
    "mask",
    "resample",
    "xt",
)
_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, -0.0, 1e308, 10**30, 10**400, 2**63, "", "0", "x" * 70_000, "\ud800", "\0", "../..", [], {},
    [[]], [1] * 21, [-1] * 21, [1e308] * 21, ["1"] * 21, [0] * 64, [1] * 64, {"steps": 1}, "poisson", "kl",
)  # fmt: skip
_BODIES = (
    b"", b"{", b"[]", b"null", b'{"steps": NaN}', b'{"steps": 1e999}', b"\xff\xfe{}", b"\xef\xbb\xbf{}", b"[" * 50_000,
    b'{"a":' * 50_000, b'{"model": "seven-segment", "model": 1}', b'{"steps": 1' + b"0" * 5000 + b"}", b"\0" * 100,
    b" " * 3_000_000,
)  # fmt: skip
_PATHS = (
    "/", "/index.html", "/api/models", "/api/model", "/api/queue", "/api/sample", "/api/upload", "/api/theory", "/api/",
    "/../app.py", "/..%2fapp.py", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/%00", "/\\..\\app.py",
    "/" + "a" * 9000,
    "/?token=", "/?token=%ff", "/?token=" + "x" * 5000, "/api/model?name=" + "../" * 50, "/api/model?name=%00", "*",
    "http://evil.example/", "/api/model?name=seven-segment&name=x", "/;/", "/%", "/é",
)  # fmt: skip
_METHODS = ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "CONNECT", "PATCH", "get", "X" * 300, "")
_HEADERS = (
    "Host: evil.example", "Host:", "Origin: http://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site",
    "Content-Length: -1", "Content-Length: 1e3", "Content-Length: 999999999999", "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip", "Upgrade: websocket\r\nConnection: Upgrade", "Expect: 100-continue",
    "Cookie: " + "a=b;" * 900, "Cookie: blackout-1=1.x", "Authorization: Bearer", "Authorization: Bearer \xe9",
    "Authorization: Basic eDp5", "X: \0", "Range: bytes=0-9999999", "X" * 70_000 + ": 1", "Content-Type: text/plain",
    "Content-Encoding: gzip", " folded",
)  # fmt: skip
_UNFINISHED = (b"Content-Length: 999999999999", b"Transfer-Encoding: chunked")  # a body would have to follow


class Request(NamedTuple):
    """Bytes to send. `cut`: the request is incomplete, and the connection is closed after it."""

    name: str
    data: bytes
    cut: bool = False


def attack(world: World, tally: Tally, *, seed: int, minutes: float, cases: int | None, case: int | None) -> None:
    """Send requests to a server in a process of its own, and stop it."""
    server = subprocess.Popen(
        [sys.executable, "-m", "blackout", "web", "--port", "0", "--no-open"], cwd=world.copy(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "BLACKOUT_TOKEN": _TOKEN},
    )  # fmt: skip
    try:
        assert server.stdout is not None
        port = int(re.findall(r":(\d+)/", server.stdout.readline())[0])
        for number in numbers(case, minutes, cases):
            request = next(requests(seed * 1_000_000 + number, _TOKEN))
            status, body = send(port, request)
            tally.count(f"status {status}" if status else "no response")
            what, again = problem(request, status, body), f"python -m attack web --seed {seed} --case {number}"
            tally.add(Failure(f"web: {request.name}: {what}", again) if what else None)
        begun = time.monotonic()
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=_SECONDS)
        if (server.returncode, out, err) != (0, "stopped\n", "") or time.monotonic() - begun > _TO_STOP:
            what = (
                f"web: status {server.returncode} {time.monotonic() - begun:.1f} s after Ctrl-C: {(out + err)[-300:]}"
            )
            tally.add(Failure(what, f"python -m attack web --seed {seed} --cases {tally.cases}"))
    finally:
        server.kill()
        server.communicate()


def requests(seed: int, token: str) -> Iterator[Request]:
    """Hostile requests without end, which depend on the seed alone; most of them have the token of the server."""
    rng = random.Random(seed)
    makers = (_values, _values, _body, _line, _header, _image)
    while True:
        name, data = rng.choice(makers)(rng, token)
        if rng.random() < 0.1:
            yield Request(f"a part of {name}", data[: rng.randrange(len(data))], True)
        else:
            yield Request(name, data, any(word in data for word in _UNFINISHED))


def send(port: int, request: Request) -> tuple[int, bytes]:
    """The status and the body of the response of a server on this machine; status 0 if there is none."""
    with socket.create_connection(("127.0.0.1", port), timeout=_SECONDS) as connection:
        received = b""
        try:
            connection.sendall(request.data)
            while not request.cut and (part := connection.recv(1 << 16)):
                received += part
        except OSError:  # the server closed the connection before it had read everything, or does not respond
            pass
    head, _, body = received.partition(b"\r\n\r\n")
    words = head.split()
    return (int(words[1]) if len(words) > 1 else 0), body


def problem(request: Request, status: int, body: bytes) -> str:
    """What is wrong with a response; empty if nothing is."""
    if status == 0 and not request.cut:
        return "no response"
    if status >= 500:
        return f"status {status}: {body[:200]!r}"
    if b"Traceback" in body:
        return f"traceback: {body[-200:]!r}"
    if status >= 400 and body.strip().count(b"\n"):
        return f"an error of several lines: {body[:200]!r}"
    return ""


def _values(rng: random.Random, token: str) -> tuple[str, bytes]:
    path, base = rng.choice((("/api/sample", _SAMPLE), ("/api/theory", _THEORY)))
    changed = {rng.choice(_NAMES): rng.choice(_VALUES) for _ in range(rng.randint(1, 2))}
    return f"{path} with {str(changed)[:80]}", _post(token, path, json.dumps({**base, **changed}).encode())


def _body(rng: random.Random, token: str) -> tuple[str, bytes]:
    path, body = rng.choice(("/api/sample", "/api/theory")), rng.choice(_BODIES)
    return f"{path} with the body {body[:40]!r}", _post(token, path, body)


def _line(rng: random.Random, token: str) -> tuple[str, bytes]:
    method, path = rng.choice(_METHODS), rng.choice(_PATHS)
    return f"{method[:20]} {path[:80]}", _http(token, f"{method} {path}")


def _header(rng: random.Random, token: str) -> tuple[str, bytes]:
    more = rng.sample(_HEADERS, rng.randint(1, 3))
    path = rng.choice(("GET /api/models", "POST /api/theory"))
    return f"{path} with {', '.join(line[:40] for line in more)!r}", _http(token, path, *more)


def _image(rng: random.Random, token: str) -> tuple[str, bytes]:
    """An image with changed bytes, which may be those of its size, or a file that is none."""
    buffer = io.BytesIO()
    kind = rng.choice(("png", "jpeg", "webp", "gif"))
    Image.effect_noise((9, 7), 50).save(buffer, kind)
    data = bytearray(buffer.getvalue())
    for _ in range(rng.randint(0, 8)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    body = rng.choice((bytes(data), bytes(data[: rng.randrange(len(data))]), b"<svg/>", b"text", b""))
    return f"an upload of {len(body)} bytes, {kind}", _post(token, "/api/upload?model=seven-segment", body)


def _post(token: str, path: str, body: bytes) -> bytes:
    return _http(token, f"POST {path}", "Content-Type: application/json", f"Content-Length: {len(body)}") + body


def _http(token: str, first: str, *headers: str) -> bytes:
    own = [] if any(line.startswith("Host:") for line in headers) else ["Host: 127.0.0.1"]
    if not any(line.startswith("Authorization:") for line in headers):
        own.append(f"Authorization: Bearer {token}")
    lines = [f"{first} HTTP/1.1", *own, *headers, "Connection: close", "", ""]
    return "\r\n".join(lines).encode("utf-8")
