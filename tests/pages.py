"""The page's server, as it is, on a free port of this machine; and a client that knows HTTP alone."""

import base64
import http.client
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy
import torch

import blackout as bo
from blackout.model import DiffusionModel
from blackout.network import BoundedLogitHead, NCSNpp, UNetConfig
from blackout.web.models import Catalogue
from blackout.web.serve import listen, serve


class Answer:
    """What a server answers, as it begins; closing it closes the connection, which is what a closed tab does."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.connection, self.response = connection, connection.getresponse()
        self.status = self.response.status

    def header(self, name: str) -> str | None:
        return self.response.getheader(name)

    def read(self) -> bytes:
        return self.response.read()

    def next(self) -> dict[str, Any]:
        """The next event of a walk."""
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


class Page:
    """A running server; `with` starts and stops it."""

    def __init__(self, folders: tuple[str, ...] = (), device: str = "auto") -> None:
        self.listener = listen(0)
        self.port = int(self.listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}/"
        self.server = serve(Catalogue(folders), device)
        self.thread = threading.Thread(target=self.server.run, args=([self.listener],))

    def __enter__(self) -> "Page":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        self.listener.close()
        assert not self.thread.is_alive()

    def open(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        return Answer(connection)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
        with self.open(method, path, body, **headers) as answer:
            data = answer.read()
            return answer.status, json.loads(data) if "json" in (answer.header("content-type") or "") else data

    def post(self, path: str, values: Any, **headers: str) -> tuple[int, Any]:
        return self.ask("POST", path, json.dumps(values).encode(), Content_Type="application/json", **headers)

    def start(self, visitor: str = "somebody", **order: Any) -> Answer:
        body = json.dumps({"visitor": visitor, **order}).encode()
        return self.open("POST", "/api/walk", body, Content_Type="application/json")

    def walk(self, **order: Any) -> list[dict[str, Any]]:
        with self.start(**order) as answer:
            assert answer.status == 200, answer.read()
            return answer.rest()

    def line(self) -> dict[str, int]:
        return dict(self.ask("GET", "/api/line")[1])


def until(what: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether it comes true in time."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def integers(text: str, shape: tuple[int, ...]) -> "numpy.typing.NDArray[Any]":
    return numpy.frombuffer(base64.b64decode(text), numpy.uint8).reshape(shape)


def class_model(num_classes: int = 3, seed: int = 0, steps: int = 20) -> DiffusionModel:
    """Pictures of 4 x 4 pixels, 17 levels and some classes, from a network that has learnt nothing."""
    torch.manual_seed(seed)
    config = UNetConfig(
        channels=1, resolution=4, width=8, multipliers=(1,), blocks=1, attention=(), num_classes=num_classes
    )
    statistics = torch.full((1, 1, 1), 5.0)
    head = BoundedLogitHead(statistics, statistics, 16)
    return DiffusionModel(bo.PureDeath(16), bo.ObservationTimes.fisher(steps), NCSNpp(config), head, shape=(1, 4, 4))
