"""Guard: this machine only, this page only."""

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?", re.IGNORECASE)
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Guard:
    """Refuses other hosts' names and other pages' requests, and tells the browser to load nothing from elsewhere.

    A page elsewhere may have its name lead to this machine (DNS rebinding): then `Host` is that name. It may send a
    form here: then `Origin` is that page. Programs without a browser send no `Origin`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        reason = refusal(Headers(scope=scope))
        answer = self.app if reason is None else JSONResponse({"error": reason}, 403)
        await answer(scope, receive, send_guarded)


def refusal(headers: Headers) -> str | None:
    """Why a request is refused; None if it is not."""
    host, origin = headers.get("host", ""), headers.get("origin")
    if _HOST.fullmatch(host) is None:
        return "this page is served to its own machine, as localhost or 127.0.0.1"
    if origin is not None and origin != f"http://{host}":
        return "this request comes from another page"
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return "this request comes from another page"
    return None
