"""Access: middleware that admits requests with the token of the server, and numbers the browsers that sent it."""

import hmac
import secrets
import threading
from hashlib import sha256
from urllib.parse import quote

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from blackout.web import limits

_SHORTEST = 8  # characters of a token
_DENIED = "the token is missing or wrong: open the address that `blackout web` printed"


class Tokens:
    """The token of a server, and the sessions of those who know it.

    A browser sends the token once, in the address, and receives a cookie with a session number, signed with the token.
    There are `limits.SESSIONS` numbers; browsers beyond these share the last one. Clients without a cookie have number
    0, and so has everyone where there is no token: a number that nobody vouches for could be invented.

    Parameters
    ----------
    token
        What a client must know; None: every user of the machine is admitted.
    """

    def __init__(self, token: str | None) -> None:
        if token is not None and len(token) < _SHORTEST:
            raise ValueError(f"token must have at least {_SHORTEST} characters, got {len(token)}")
        self.token = token
        self._single_use: str | None = None
        self._issued = 0
        self._lock = threading.Lock()

    def query(self) -> str:
        """The token as the query of an address."""
        return "" if self.token is None else f"?token={quote(self.token, safe='')}"

    def single_use_query(self) -> str:
        """A query that admits one browser: for a command line, which other users of the machine can read."""
        if self.token is None:
            return ""
        self._single_use = secrets.token_urlsafe(24)
        return f"?token={self._single_use}"

    def admits(self, given: str) -> bool:
        """Whether this is the token, or that of `single_use_query` for the first time."""
        if self.token is None or _equal(given, self.token):
            return True
        with self._lock:
            if self._single_use is None or not _equal(given, self._single_use):
                return False
            self._single_use = None
            return True

    def new_cookie(self) -> str:
        """The cookie of the next session."""
        with self._lock:
            self._issued = min(self._issued + 1, limits.SESSIONS - 1)
            return self._cookie(self._issued)

    def session(self, cookie: str) -> int | None:
        """The session number of a cookie; None if it was not signed with this token."""
        if self.token is None:
            return 0
        return next((k for k in range(1, limits.SESSIONS) if _equal(cookie, self._cookie(k))), None)

    def _cookie(self, number: int) -> str:
        return f"{number}.{hmac.new((self.token or '').encode(), b'%d' % number, sha256).hexdigest()}"


class Access:
    """Reject requests without the token; set `scope["session"]` of the others.

    The token is the query of the first page, `/?token=...`, which sets a cookie and redirects to the page without it.
    Programs may send the header `Authorization: Bearer ...` instead.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self.app, self.tokens = app, tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = self._admit(scope) if scope["type"] == "http" else None
        await (response or self.app)(scope, receive, send)

    def _admit(self, scope: Scope) -> Response | None:
        """Set the session, or return the response that takes the place of the page."""
        request, path = HTTPConnection(scope), scope["path"]
        # Cookies do not belong to a port: servers on several ports, also forwarded ones, need several names.
        name = f"blackout-{request.headers.get('host', '').rpartition(':')[2]}"
        session = self.tokens.session(request.cookies.get(name, ""))
        given = request.query_params.get("token") if path == "/" else None
        if given is not None and (session is not None or self.tokens.admits(given)):
            response = RedirectResponse("/", 303)
            if session is None:
                response.set_cookie(name, self.tokens.new_cookie(), httponly=True, samesite="strict")
            return response
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if session is None and kind.lower() == "bearer" and self.tokens.admits(given.strip()):
            session = 0
        if session is None:
            is_api = path.startswith("/api/")
            return JSONResponse({"error": _DENIED}, 401) if is_api else PlainTextResponse(_DENIED + "\n", 401)
        scope["session"] = session
        return None


def _equal(given: str, expected: str) -> bool:
    """In a time that does not depend on where the two differ."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())
