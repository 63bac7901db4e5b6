"""The server: what is asked of it, and what it answers."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from blackout.model import DiffusionModel
from blackout.web import limits
from blackout.web.guard import Guard
from blackout.web.jobs import Event, Job, Line, Refused
from blackout.web.models import Catalogue
from blackout.web.orders import Order, read_order
from blackout.web.pictures import levels
from blackout.web.stream import Stream
from blackout.web.theory import theory
from blackout.web.walks import work

_log = logging.getLogger("blackout.web")

STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
CALCULATIONS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {"theory": theory}
"""Rooms that ask a question and get an answer at once: POST /api/NAME."""


class Desk:
    """Everything that requests share."""

    def __init__(self, catalogue: Catalogue, device: str) -> None:
        self.catalogue, self.device, self.line = catalogue, device, Line()
        self.decoding = asyncio.Lock()

    async def models(self, _: Request) -> Response:
        names = ("STEPS", "CORRECTORS", "RESAMPLE", "GUIDANCE", "SEED", "UPLOAD")
        bounds = {name.lower(): getattr(limits, name) for name in names}
        return JSONResponse({"models": self.catalogue.names, "limits": bounds})

    async def model(self, request: Request) -> Response:
        name = request.query_params.get("name")
        return JSONResponse(await run_in_threadpool(self.catalogue.describe, name))

    async def state(self, _: Request) -> Response:
        return JSONResponse(self.line.state())

    async def walk(self, request: Request) -> Response:
        values = await _json(request)
        visitor = values.pop("visitor", None)
        if not isinstance(visitor, str) or not 0 < len(visitor) <= 64:
            raise ValueError(f"visitor must be a name of at most 64 characters, got {visitor!r:.80}")
        model, order = await run_in_threadpool(self._order, values)
        loop, events = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def tell(event: Event) -> None:
            loop.call_soon_threadsafe(events.put_nowait, event)

        job = Job(visitor, work(model, order, self.device), tell)
        self.line.join(job)
        return Stream(events, lambda: self.line.leave(job))

    def _order(self, values: dict[str, Any]) -> tuple[DiffusionModel, Order]:
        model = self.catalogue.open(values.get("model"))
        return model, read_order(values, model)

    async def picture(self, request: Request) -> Response:
        data = await _body(request, limits.UPLOAD)
        async with self.decoding:  # one at a time: a large picture takes some hundred megabytes while it is read
            return JSONResponse(await run_in_threadpool(self._levels, data, request.query_params.get("model")))

    def _levels(self, data: bytes, name: str | None) -> dict[str, Any]:
        model = self.catalogue.open(name)
        return {"x": levels(data, model.shape or (), model.max_state).reshape(-1).tolist()}


def make_app(catalogue: Catalogue, device: str = "auto") -> Starlette:
    """The application for one list of models. `device` is the word that the visitor's command line is given."""
    desk = Desk(catalogue, device)
    answers: dict[str, Callable[[Request], Awaitable[Response]]] = {
        "GET models": desk.models,
        "GET model": desk.model,
        "GET line": desk.state,
        "POST walk": desk.walk,
        "POST picture": desk.picture,
        **{f"POST {name}": _calculation(function) for name, function in CALCULATIONS.items()},
    }
    routes = [
        Route(f"/api/{name}", _in_one_line(answer), methods=[method])
        for (method, name), answer in ((key.split(), answer) for key, answer in answers.items())
    ]
    app = Starlette(routes=[*routes, *_files()])
    app.add_middleware(Guard)
    app.state.line = desk.line
    return app


def _files() -> list[Route]:
    """A route for each file of the page, read once: no name that comes from a browser is looked up on the disk."""
    routes = []
    for path in sorted(STATIC.iterdir()):
        if path.suffix in TYPES:
            names = ["/", "/index.html"] if path.name == "index.html" else [f"/{path.name}"]
            answer = _file(path.read_bytes(), TYPES[path.suffix])
            routes += [Route(name, answer, methods=["GET"]) for name in names]
    return routes


def _file(data: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        return Response(data, media_type=kind, headers={"Cache-Control": "no-cache"})

    return answer


def _calculation(function: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(function, await _json(request)))

    return answer


def _in_one_line(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """What is refused is refused in one line that the page can show."""

    async def guarded(request: Request) -> Response:
        try:
            response = await answer(request)
        except ClientDisconnect:
            response = Response(status_code=400)  # who has gone hears nothing
        except Refused as error:
            response = _refusal(str(error), 429)
        except TooLarge as error:
            response = _refusal(str(error), 413)
        except ValueError as error:
            response = _refusal(str(error), 400)
        except Exception as error:
            _log.exception("a request failed")
            response = _refusal(f"the request failed: {type(error).__name__} {error}", 500)
        response.headers["Cache-Control"] = "no-store"
        return response

    return guarded


def _refusal(reason: str, status: int) -> Response:
    """One line, and no long one: what was sent is quoted in it, whatever its length."""
    line = " ".join(reason[: 2 * limits.REASON].split())
    return JSONResponse({"error": line if len(line) <= limits.REASON else f"{line[: limits.REASON]} ..."}, status)


class TooLarge(Exception):
    """More bytes than are read."""


async def _body(request: Request, most: int) -> bytes:
    """All that was sent. What is too large is read to its end, and forgotten, or the browser would not hear why."""
    data, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= most:
            data += chunk
        elif size > 8 * most:
            break
    if size > most:
        raise TooLarge(f"too many bytes were sent: at most {most:,} are read")
    return bytes(data)


async def _json(request: Request) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise ValueError("the request must be application/json")
    try:
        values = json.loads(await _body(request, limits.MESSAGE), parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise ValueError("the request is not JSON") from None
    if not isinstance(values, dict):
        raise ValueError(f"the request must be an object, got {type(values).__name__}")
    return values


def _no_number(name: str) -> None:
    raise ValueError(name)
