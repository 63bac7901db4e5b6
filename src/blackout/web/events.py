"""EventStream: a response that sends the events of a job as lines of JSON."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

LAST = ("done", "stopped", "error")


class EventStream(Response):
    """Send the events of a queue up to the last one, or until the client disconnects; then call `on_close`."""

    media_type = "application/x-ndjson"

    def __init__(self, events: "asyncio.Queue[Any]", on_close: Callable[[], None]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self.events, self.on_close = events, on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = asyncio.create_task(self._watch(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while (event := await self.events.get()) is not None:
                line = json.dumps(event).encode() + b"\n"
                await send({"type": "http.response.body", "body": line, "more_body": True})
                if event["event"] in LAST:
                    break
            await send({"type": "http.response.body", "body": b""})
        finally:
            watch.cancel()
            self.on_close()

    async def _watch(self, receive: Receive) -> None:
        """End the stream as soon as the client disconnects, also while no event is due."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.events.put_nowait(None)
