"""Connections with limits: on their number, and on the time that a client takes to send a request or to read."""

import asyncio
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from blackout.web import limits


class Connection(H11Protocol):
    """A connection that is closed if its client is too slow, or if it is the oldest idle one of too many.

    uvicorn has a limit for idle connections only: one byte of a request turns that off.
    """

    _phase: Any = None
    _timer: asyncio.TimerHandle | None = None
    _deaf: asyncio.TimerHandle | None = None
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        others = [other for other in cast(set[Connection], self.connections) if not other.transport.is_closing()]
        if len(others) >= limits.CONNECTIONS:
            idle = [other for other in others if other._is_receiving()]
            (min(idle, key=lambda other: other._since).transport if idle else transport).abort()
        super().connection_made(transport)
        self._update()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._timer, self._deaf):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._deaf = self.loop.call_later(limits.SECONDS_TO_READ, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._deaf is not None:
            self._deaf.cancel()
            self._deaf = None

    def shutdown(self) -> None:
        """The server stops: slow clients are not waited for."""
        super().shutdown()
        if self._is_receiving() or self._deaf is not None:
            self.transport.abort()

    def _is_receiving(self) -> bool:
        return self._phase in (h11.IDLE, h11.SEND_BODY)

    def _update(self) -> None:
        """Start a timer when the client begins to send a head or a body; more bytes of it do not extend the time."""
        if self.conn.their_state is self._phase:
            return
        self._phase, self._since = self.conn.their_state, self.loop.time()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_receiving():
            seconds = limits.SECONDS_FOR_HEAD if self._phase is h11.IDLE else limits.SECONDS_FOR_BODY
            self._timer = self.loop.call_later(seconds, self.transport.close)
