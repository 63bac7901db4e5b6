"""LocalOnly: middleware that rejects requests from other hosts and other pages."""

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?", re.IGNORECASE)
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class LocalOnly:
    """Reject foreign `Host` and `Origin` headers; forbid the browser to load anything from another server.

    A foreign `Host` is a DNS rebinding attack: another site's name resolves to this machine. A foreign `Origin` is a
    request sent by another page. Programs that are not browsers send no `Origin`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        reason = rejection(Headers(scope=scope))
        app = self.app if reason is None else JSONResponse({"error": reason}, 403)
        await app(scope, receive, send_with_headers)


def rejection(headers: Headers) -> str | None:
    """The reason to reject a request; None if it is accepted."""
    host, origin = headers.get("host", ""), headers.get("origin")
    if _HOST.fullmatch(host) is None:
        return "this server accepts local requests only, to localhost or 127.0.0.1"
    same_site = headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
    if not same_site or (origin is not None and origin != f"http://{host}"):
        return "cross-origin requests are rejected"
    return None
