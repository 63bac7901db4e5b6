"""Serve the page on a local port."""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import sys
import webbrowser
from collections.abc import Callable

import uvicorn

from blackout.web.access import Tokens
from blackout.web.app import Api, make_app
from blackout.web.connections import Connection
from blackout.web.models import Catalogue

ADDRESS, PORT = "127.0.0.1", 8000

_log = logging.getLogger("uvicorn.error")


def listen(port: int | None) -> socket.socket:
    """A listening socket on 127.0.0.1. `port`: None for 8000 or, if that is taken, any free port; 0 for any."""
    wanted = PORT if port is None else port
    if not 0 <= wanted < 65536:
        raise ValueError(f"port must be from 0 to 65535, got {wanted}")
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            listener.bind((ADDRESS, wanted))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            if port is not None:
                raise ValueError(f"port {port} is not available: {error.strerror}; --port 0 uses any") from None
            listener.bind((ADDRESS, 0))
        listener.listen()
    except BaseException:
        listener.close()
        raise
    return listener


class Server(uvicorn.Server):
    """A server that cancels its jobs before it waits for the connections that stream them."""

    def __init__(self, config: uvicorn.Config, api: Api) -> None:
        super().__init__(config)
        self._api = api

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await asyncio.to_thread(self._api.close)
        _log.setLevel(logging.CRITICAL)  # open connections are closed, which is not an error
        await super().shutdown(sockets)


def make_server(catalogue: Catalogue, tokens: Tokens, device: str = "auto") -> Server:
    """A server for the page; `server.run([socket])` runs it."""
    _log.setLevel(logging.ERROR)  # warnings are hints on packages, and reports of malformed requests
    app = make_app(catalogue, tokens, device)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        http=Connection,
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    return Server(config, app.state.api)


def serve(
    catalogue: Catalogue, tokens: Tokens, port: int | None, open_browser: bool, device: str, echo: Callable[[str], None]
) -> None:
    """Serve the page until Ctrl-C."""
    listener = listen(port)
    url = f"http://{ADDRESS}:{listener.getsockname()[1]}/"
    echo(f"{url}{tokens.query()}  (this machine only; Ctrl-C stops)")
    if open_browser and _has_display():
        webbrowser.open(url + tokens.single_use_query())  # the socket listens already: the browser waits for the server
    with listener, contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again after shutdown, except in a script
        make_server(catalogue, tokens, device).run(sockets=[listener])


def _has_display() -> bool:
    """Without one, Python would open a text browser in the terminal."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
