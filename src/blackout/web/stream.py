"""Events to a browser, a line of JSON for each, for as long as it listens."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

LAST = ("done", "stopped", "error")


class Stream(Response):
    """The events of a queue until a last one comes; `ended` is called then, or as soon as the browser has gone."""

    media_type = "application/x-ndjson"

    def __init__(self, events: "asyncio.Queue[Any]", ended: Callable[[], None]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self.events, self.ended = events, ended

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
            self.ended()

    async def _watch(self, receive: Receive) -> None:
        """The one thing that a browser still has to say is that it has gone."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.events.put_nowait(None)
