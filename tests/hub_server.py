"""The endpoints of the Hugging Face Hub that `push_to_hub` and `load` use, on this machine."""

import base64
import hashlib
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_of_the_tests"


class Hub(ThreadingHTTPServer):
    """Repositories of models as lists of commits, each {path: content}; who writes needs TOKEN."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos: dict[str, list[dict[str, bytes]]] = {}
        self.downloads: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def commit(self, repo: str, files: dict[str, bytes], deleted: set[str] = frozenset()) -> str:
        last = self.repos[repo][-1] if self.repos[repo] else {}
        self.repos[repo].append({**{path: last[path] for path in last if path not in deleted}, **files})
        return oid(repo, len(self.repos[repo]) - 1)

    def find(self, repo: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        """The commit of a revision, "main" or its number, and its files."""
        commits = self.repos.get(repo, [])
        for number, files in reversed(list(enumerate(commits))):
            if revision in ("main", oid(repo, number)):
                return oid(repo, number), files
        return None


def oid(repo: str, number: int) -> str:
    return hashlib.sha1(f"{repo} {number}".encode()).hexdigest()


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = urlsplit(self.path).path
        if path == "/api/validate-yaml":
            return self._json({"warnings": [], "errors": []})
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self._json({"error": "Invalid credentials"}, 401)
        if path == "/api/repos/create":
            repo = "{organization}/{name}".format(**{"organization": "", **json.loads(body)})
            status = 409 if repo in self.server.repos else 200
            self.server.repos.setdefault(repo, [{".gitattributes": b""}])  # as the Hub does
            return self._json({"url": f"{self.server.url}/{repo}", "id": repo}, status)
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/preupload/main", path):
            files = [file["path"] for file in json.loads(body)["files"]]
            return self._json({"files": [{"path": p, "uploadMode": "regular", "shouldIgnore": False} for p in files]})
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main", path):
            items = [json.loads(line) for line in body.splitlines()]
            files = {i["value"]["path"]: base64.b64decode(i["value"]["content"]) for i in items if i["key"] == "file"}
            deleted = {i["value"]["path"] for i in items if i["key"] == "deletedFile"}
            made = self.server.commit(found[1], files, deleted)
            return self._json({"commitUrl": f"{self.server.url}/{found[1]}/commit/{made}", "commitOid": made})
        return self._json({"error": f"no {path}"}, 404)

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            return self._file(found[1], found[2], found[3])
        found = re.fullmatch(r"/api/models/([^/]+/[^/]+?)(?:/(?:revision|tree)/([^/]+))?", path)
        if found is None or found[1] not in self.server.repos:
            return self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        commit = self.server.find(found[1], found[2] or "main")
        if commit is None:
            return self._json({"error": "Invalid rev id"}, 404, {"X-Error-Code": "RevisionNotFound"})
        if "/tree/" in path:
            files = commit[1].items()
            return self._json([{"type": "file", "path": p, "size": len(b), "oid": etag(b)} for p, b in files])
        siblings = [{"rfilename": path} for path in commit[1]]
        return self._json({"id": found[1], "sha": commit[0], "siblings": siblings, "tags": [], "private": False})

    do_HEAD = do_GET  # noqa: N815

    def _file(self, repo: str, revision: str, path: str) -> None:
        commit = self.server.find(repo, revision)
        if commit is None or path not in commit[1]:
            return self._json({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
        body = commit[1][path]
        if self.command == "GET":
            self.server.downloads.append(path)
        return self._send(200, body, {"ETag": f'"{etag(body)}"', "X-Repo-Commit": commit[0]})

    def _json(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


def etag(body: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
