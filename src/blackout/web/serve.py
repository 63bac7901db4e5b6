"""From a list of models to a page on a port of this machine."""

import asyncio
import errno
import logging
import os
import socket
import sys
import webbrowser
from collections.abc import Callable

import uvicorn

from blackout.web.app import make_app
from blackout.web.jobs import Line
from blackout.web.models import Catalogue

ADDRESS, PORT = "127.0.0.1", 8000

_log = logging.getLogger("uvicorn.error")


def listen(port: int | None) -> socket.socket:
    """A socket on a port of this machine; None: the usual one, or any that is free; 0: any that is free."""
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
                raise ValueError(f"port {port} cannot be had: {error.strerror}; --port 0 takes any") from None
            listener.bind((ADDRESS, 0))
        listener.listen()
    except BaseException:
        listener.close()
        raise
    return listener


class Server(uvicorn.Server):
    """A server that ends its walks before it waits for those who listen to them."""

    def __init__(self, config: uvicorn.Config, line: Line) -> None:
        super().__init__(config)
        self._line = line

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await asyncio.to_thread(self._line.close)
        _log.setLevel(logging.CRITICAL)  # whoever still sends, reads or waits for an answer is cut off: no failure
        await super().shutdown(sockets)


def serve(catalogue: Catalogue, device: str = "auto") -> Server:
    """A server for the page, to be run with a socket that listens."""
    _log.setLevel(logging.ERROR)  # below that there is advice on packages, and that somebody sent nonsense
    app = make_app(catalogue, device)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        http="h11",
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    return Server(config, app.state.line)


def run(catalogue: Catalogue, port: int | None, open_browser: bool, device: str, tell: Callable[[str], None]) -> None:
    """Serve until Ctrl-C."""
    listener = listen(port)
    url = f"http://{ADDRESS}:{listener.getsockname()[1]}/"
    tell(f"{url}  (this machine only; Ctrl-C stops)")
    if open_browser and _has_screen():
        webbrowser.open(url)  # the socket listens already: the page waits for the server, not the other way round
    with listener:
        serve(catalogue, device).run(sockets=[listener])


def _has_screen() -> bool:
    """Without one, Python would open a browser in the terminal."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
