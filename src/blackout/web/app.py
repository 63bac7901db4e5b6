"""The HTTP server: its routes, and how errors are reported."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from blackout.model import DiffusionModel
from blackout.sampling import SAMPLERS
from blackout.times import TIME_RULES
from blackout.web import limits
from blackout.web.access import Access, Tokens
from blackout.web.events import EventStream
from blackout.web.jobs import Event, Job, JobQueue, QueueFull
from blackout.web.local_only import LocalOnly
from blackout.web.models import Catalogue
from blackout.web.requests import SamplingRequest, read_request
from blackout.web.sampling_job import sampling_job
from blackout.web.theory import theory
from blackout.web.uploads import image_levels

_log = logging.getLogger("blackout.web")

STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
CALCULATIONS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {"theory": theory}
"""Functions from JSON to JSON that are called without queueing: POST /api/NAME."""

Endpoint = Callable[[Request], Awaitable[Response]]


class TooLarge(Exception):
    """The body of a request exceeds its limit."""


class Api:
    """The endpoints, and the state that requests share."""

    def __init__(self, catalogue: Catalogue, device: str) -> None:
        self.catalogue, self.device, self.queue = catalogue, device, JobQueue()
        # One at a time: a large image takes some hundred megabytes, and each thread keeps the memory it once needed.
        self.worker, self.turn = ThreadPoolExecutor(1, "calculation"), asyncio.Lock()

    async def models(self, _: Request) -> Response:
        names = ("STEPS", "CORRECTORS", "RESAMPLE", "GUIDANCE", "SEED", "UPLOAD")
        registries = {"samplers": SAMPLERS, "times": TIME_RULES}
        return JSONResponse(
            {
                "models": self.catalogue.names,
                "limits": {name.lower(): getattr(limits, name) for name in names},
                **{key: {name: registry.help(name) for name in registry} for key, registry in registries.items()},
            }
        )

    async def model(self, request: Request) -> Response:
        name = request.query_params.get("name")
        return JSONResponse(await run_in_threadpool(self.catalogue.describe, name))

    async def state(self, _: Request) -> Response:
        return JSONResponse(self.queue.state())

    async def sample(self, request: Request) -> Response:
        values = await _json(request)
        model, checked = await run_in_threadpool(self._read_request, values)
        loop, events = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def emit(event: Event) -> None:
            with contextlib.suppress(RuntimeError):  # the server has stopped
                loop.call_soon_threadsafe(events.put_nowait, event)

        job = Job(request.scope["session"], sampling_job(model, checked, self.device), emit)
        self.queue.submit(job)
        return EventStream(events, lambda: self.queue.cancel(job))

    def _read_request(self, values: dict[str, Any]) -> tuple[DiffusionModel, SamplingRequest]:
        model = self.catalogue.open(values.get("model"))
        return model, read_request(values, model)

    async def upload(self, request: Request) -> Response:
        data = await _body(request, limits.UPLOAD)
        return await self._calculate(request, self._levels, data, request.query_params.get("model"))

    def _levels(self, data: bytes, name: str | None) -> dict[str, Any]:
        model = self.catalogue.open(name)
        levels = image_levels(data, model.shape or (), model.max_state, model.record.background)
        return {"x": levels.reshape(-1).tolist()}

    def close(self) -> None:
        """Cancel all work."""
        self.worker.shutdown(wait=False, cancel_futures=True)
        self.queue.close()

    def calculation(self, function: Callable[[dict[str, Any]], dict[str, Any]]) -> Endpoint:
        async def answer(request: Request) -> Response:
            return await self._calculate(request, function, await _json(request))

        return answer

    async def _calculate(self, request: Request, function: Callable[..., dict[str, Any]], *arguments: Any) -> Response:
        """The response of the worker thread; a client that has left in the meantime is skipped."""

        def encode() -> Response:
            return JSONResponse(function(*arguments))

        async with self.turn:
            if await request.is_disconnected():
                raise ClientDisconnect
            return await asyncio.get_running_loop().run_in_executor(self.worker, encode)


def make_app(catalogue: Catalogue, tokens: Tokens, device: str = "auto") -> Starlette:
    """The application. `device` is the value of `--device` in the commands that reproduce samples."""
    api = Api(catalogue, device)
    endpoints: list[tuple[str, str, Endpoint]] = [
        ("GET", "models", api.models),
        ("GET", "model", api.model),
        ("GET", "queue", api.state),
        ("POST", "sample", api.sample),
        ("POST", "upload", api.upload),
        *(("POST", name, api.calculation(function)) for name, function in CALCULATIONS.items()),
    ]
    routes = [Route(f"/api/{name}", _report_errors(endpoint), methods=[method]) for method, name, endpoint in endpoints]
    middleware = [Middleware(LocalOnly), Middleware(Access, tokens)]
    app = Starlette(routes=[*routes, *_static_routes()], middleware=middleware)
    app.state.api = api
    return app


def _static_routes() -> list[Route]:
    """A route for each static file, read once: no path from a browser is opened."""
    routes = []
    for path in sorted(STATIC.iterdir()):
        headers = {"Cache-Control": "no-cache"}
        response = Response(path.read_bytes(), media_type=TYPES[path.suffix], headers=headers)
        names = ("", path.name) if path.name == "index.html" else (path.name,)
        routes += [Route(f"/{name}", response, methods=["GET"]) for name in names]
    return routes


def _report_errors(endpoint: Endpoint) -> Endpoint:
    """The endpoint, with every exception reported as one line of JSON that the page can show."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ClientDisconnect:
            return Response(status_code=400)  # not delivered
        except QueueFull as error:
            return _error(str(error), 429)
        except TooLarge as error:
            return _error(str(error), 413)
        except ValueError as error:
            return _error(str(error), 400)
        except Exception as error:
            _log.exception("a request failed")
            return _error(f"the request failed: {type(error).__name__} {error}", 500)

    return answer


def _error(message: str, status: int) -> Response:
    """One line of limited length: a message may quote what was sent, of any length."""
    line = " ".join(message[: 2 * limits.ERROR].split())
    return JSONResponse({"error": line if len(line) <= limits.ERROR else f"{line[: limits.ERROR]} ..."}, status)


async def _body(request: Request, limit: int) -> bytes:
    """The body of a request. One that is too large is read on and discarded, or the browser would not see the error."""
    data, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limit:
            data += chunk
        elif size > 8 * limit:
            break
    if size > limit:
        raise TooLarge(f"the request is too large: at most {limit:,} bytes are accepted")
    return bytes(data)


async def _json(request: Request) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise ValueError("the request must be application/json")
    try:
        values = json.loads(await _body(request, limits.MESSAGE), parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        raise ValueError("the request is not valid JSON") from None
    if not isinstance(values, dict):
        raise ValueError(f"the request must be a JSON object, got {type(values).__name__}")
    return values


def _reject_constant(name: str) -> None:
    raise ValueError(name)  # NaN and Infinity are not JSON
