"""The page's server on a free local port, an HTTP client for it, and small models."""

import base64
import http.client
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import pytest
import torch

import blackout as bo
from blackout.cli import main
from blackout.web.access import Tokens
from blackout.web.models import Catalogue
from blackout.web.serve import listen, make_server

PRETRAINED = ["mnist-binary", "cifar10", "seven-segment", "cifar10-likelihood"]  # few steps first, then the fastest
IDLE = {"running": 0, "waiting": 0}
TOKEN = "a token & more"


class Answer:
    """A response whose body is read step by step; closing it closes the connection, as closing a tab does."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.connection, self.response = connection, connection.getresponse()
        self.status = self.response.status

    def header(self, name: str) -> str | None:
        return self.response.getheader(name)

    def read(self) -> bytes:
        return self.response.read()

    def next(self) -> dict[str, Any]:
        """The next event of a sampling job."""
        return dict(json.loads(self.response.readline()))

    def rest(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.response]

    def close(self) -> None:
        self.response.close()
        self.connection.close()

    def __enter__(self) -> "Answer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalServer:
    """A running server; `with` starts and stops it."""

    def __init__(self, folders: tuple[str, ...] = (), device: str = "auto") -> None:
        self.listener = listen(0)
        self.port = int(self.listener.getsockname()[1])
        self.catalogue, self.tokens = Catalogue(folders), Tokens(TOKEN)
        self.url = f"http://127.0.0.1:{self.port}/{self.tokens.query()}"
        self.server = make_server(self.catalogue, self.tokens, device)
        self.cookies: dict[str, str] = {}
        self.thread = threading.Thread(target=self.server.run, args=([self.listener],))

    def __enter__(self) -> "LocalServer":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        self.listener.close()
        assert not self.thread.is_alive()

    def open(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """A request with the token, unless there is a cookie or another `Authorization`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        if not headers.keys() & {"Cookie", "Authorization"}:
            headers["Authorization"] = f"Bearer {TOKEN}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        return Answer(connection)

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
        with self.open(method, path, body, **headers) as answer:
            data = answer.read()
            return answer.status, json.loads(data) if "json" in (answer.header("content-type") or "") else data

    def get(self, path: str) -> Any:
        return self.request("GET", path)[1]

    def post(self, path: str, values: Any, **headers: str) -> tuple[int, Any]:
        return self.request("POST", path, json.dumps(values).encode(), Content_Type="application/json", **headers)

    def cookie(self, client: str) -> str:
        """The cookie of a browser, which opens the page at its first request."""
        if client not in self.cookies:
            with self.open("GET", f"/{self.tokens.query()}", Authorization="") as answer:
                self.cookies[client] = (answer.header("set-cookie") or "").partition(";")[0]
        return self.cookies[client]

    def start(self, client: str = "client", **values: Any) -> Answer:
        """A sampling job of a browser, whose events are still to be read."""
        body = json.dumps(values).encode()
        return self.open("POST", "/api/sample", body, Content_Type="application/json", Cookie=self.cookie(client))

    def sample(self, **values: Any) -> list[dict[str, Any]]:
        """All events of a sampling job."""
        with self.start(**values) as answer:
            assert answer.status == 200, answer.read()
            return answer.rest()

    def queue(self) -> dict[str, int]:
        return dict(self.get("/api/queue"))

    def slow_down(self, name: str, seconds: float) -> None:
        """Delay every network pass of a model, without computing."""
        network = self.catalogue.open(name).predictor.network
        network.register_forward_pre_hook(lambda *_: time.sleep(seconds))


def until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether the condition becomes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def status(arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit status of a command, run in this process."""
    monkeypatch.setattr(sys, "argv", ["blackout", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def unpack(text: str, shape: tuple[int, ...]) -> "numpy.typing.NDArray[Any]":
    return numpy.frombuffer(base64.b64decode(text), numpy.uint8).reshape(shape)


def image_model(
    channels: int = 1, steps: int = 20, num_classes: int = 0, seed: int = 0, process: Any = None
) -> bo.DiffusionModel:
    """An untrained model of images with 4 x 4 pixels and 17 levels."""
    process = bo.PureDeath(16) if process is None else process
    states = min(17, process.num_states - 1)
    x = torch.randint(0, states, (8, channels, 4, 4), generator=torch.Generator().manual_seed(0))
    times = bo.ObservationTimes.fisher(steps)
    return bo.DiffusionModel.for_data(x, process, times, num_classes=num_classes, seed=seed, width=8, blocks=1)


def count_model() -> bo.DiffusionModel:
    return bo.DiffusionModel.for_data(torch.arange(40).reshape(8, 5) % 7, bo.PureDeath(None), width=8, blocks=1)
