"""The Confluent REST API over HTTP."""

from __future__ import annotations

import json
import logging
from asyncio import timeout, wrap_future
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ...app.compose.https import BasicAuthentication
from . import routes_schemas as schemas
from . import routes_subjects as subjects
from .call import Call
from .errors import RegistryError
from .registry import Registry

logger = logging.getLogger("barnabas.schemas.registry")

BODY_BYTES_MAX = 8 * 1024 * 1024
BODY_S = 30.0
_OWN_TYPE = "application/vnd.schemaregistry.v1+json"
_SPOKEN = (_OWN_TYPE, "application/vnd.schemaregistry+json", "application/json")
_TAKEN = (*_SPOKEN, "application/octet-stream")

Handle = Callable[[Call], Any]

_ROUTES: tuple[tuple[str, str, Handle], ...] = (
    ("GET", "/subjects", subjects.list_subjects),
    ("POST", "/subjects/{subject}", subjects.look_up),
    ("DELETE", "/subjects/{subject}", subjects.remove_subject),
    ("GET", "/subjects/{subject}/metadata", subjects.get_latest_with_metadata),
    ("GET", "/subjects/{subject}/versions", subjects.list_versions),
    ("POST", "/subjects/{subject}/versions", subjects.register_schema),
    ("GET", "/subjects/{subject}/versions/{version}", subjects.get_version),
    ("DELETE", "/subjects/{subject}/versions/{version}", subjects.remove_version),
    ("GET", "/subjects/{subject}/versions/{version}/schema", subjects.get_version_schema),
    ("GET", "/subjects/{subject}/versions/{version}/referencedby", subjects.referenced_by),
    ("POST", "/compatibility/subjects/{subject}/versions", subjects.check_all_versions),
    ("POST", "/compatibility/subjects/{subject}/versions/{version}", subjects.check_version),
    ("GET", "/schemas", schemas.list_schemas),
    ("GET", "/schemas/types", schemas.list_types),
    ("GET", "/schemas/ids/{id}", schemas.get_schema),
    ("GET", "/schemas/ids/{id}/schema", schemas.get_schema_text),
    ("GET", "/schemas/ids/{id}/subjects", schemas.get_subjects_of_schema),
    ("GET", "/schemas/ids/{id}/versions", schemas.get_versions_of_schema),
    ("GET", "/schemas/guids/{guid}", schemas.get_schema_by_guid),
    ("GET", "/schemas/guids/{guid}/ids", schemas.get_ids_of_guid),
    ("GET", "/config", schemas.get_config),
    ("PUT", "/config", schemas.put_config),
    ("DELETE", "/config", schemas.remove_config),
    ("GET", "/config/{subject}", schemas.get_config),
    ("PUT", "/config/{subject}", schemas.put_config),
    ("DELETE", "/config/{subject}", schemas.remove_config),
    ("GET", "/mode", schemas.get_mode),
    ("PUT", "/mode", schemas.put_mode),
    ("DELETE", "/mode", schemas.remove_mode),
    ("GET", "/mode/{subject}", schemas.get_mode),
    ("PUT", "/mode/{subject}", schemas.put_mode),
    ("DELETE", "/mode/{subject}", schemas.remove_mode),
    ("GET", "/contexts", schemas.list_contexts),
    ("GET", "/", lambda _: {}),
)


def make_app(registry: Registry, users: BasicAuthentication | None = None) -> ASGIApp:
    """Return the application; the caller starts and stops the registry. `users`: those who may use it."""
    by_path: dict[str, dict[str, Handle]] = {}
    for method, path, handle in _ROUTES:
        by_path.setdefault(path, {})[method] = handle
    routes = [Route(path, _endpoint(registry, handles), methods=sorted(handles)) for path, handles in by_path.items()]
    failures = {HTTPException: _http_failure, Exception: _failure}
    app = _RawPath(Starlette(routes=routes, exception_handlers=failures))
    return app if users is None else _Authenticated(app, users)


class _Authenticated:
    """Passes the requests of known users, by HTTP's basic authentication."""

    def __init__(self, app: ASGIApp, users: BasicAuthentication) -> None:
        self._app = app
        self._users = users

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            if self._users.user_of(given.decode("latin-1")) is None:
                refused = _answer({"error_code": 401, "message": "HTTP 401 Unauthorized"}, 401)
                refused.headers["WWW-Authenticate"] = self._users.challenge
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)


class _RawPath:
    """Passes the path to the routes as it was sent: a subject may have a slash in its name, as %2F."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("raw_path"):
            path = scope["raw_path"].decode("ascii", "replace")
            scope = {**scope, "path": path.rstrip("/") or "/"}
        await self._app(scope, receive, send)


def _endpoint(registry: Registry, handles: dict[str, Handle]) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        handle = handles["GET" if request.method == "HEAD" else request.method]
        try:
            _negotiate(request)
            path = {name: unquote(value) for name, value in request.path_params.items()}
            async with timeout(BODY_S):
                body = await _body(request)
            pairs = request.query_params.multi_items()
            call = Call(registry=registry, path=path, query=dict(pairs), pairs=pairs, body=body)
            # Lookups are quick; parsing of schemas runs on a thread.
            answer = await run_in_threadpool(handle, call) if body or "format" in call.query else handle(call)
            if isinstance(answer, Future):
                answer = await wrap_future(answer)
        except RegistryError as error:
            return _answer({"error_code": error.code, "message": str(error)}, error.status)
        except TimeoutError:
            return _answer({"error_code": 408, "message": f"HTTP 408: request incomplete after {BODY_S:g} s"}, 408)
        except ClientDisconnect:
            return Response(status_code=400)
        return Response(answer, media_type=_OWN_TYPE) if isinstance(answer, str) else _answer(answer)

    return endpoint


def _negotiate(request: Request) -> None:
    accepted = request.headers.get("accept", "*/*").lower()
    if not any(each in accepted for each in (*_SPOKEN, "*/*", "application/*")):
        raise RegistryError(406, f"HTTP 406 Not Acceptable: supported are {', '.join(_SPOKEN)}")
    given = request.headers.get("content-type", _OWN_TYPE).partition(";")[0].strip().lower()
    if request.method in ("POST", "PUT") and given not in _TAKEN:
        raise RegistryError(415, f"HTTP 415 Unsupported Media Type: send one of {', '.join(_TAKEN)}")


async def _body(request: Request) -> bytes:
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > BODY_BYTES_MAX:
            raise RegistryError(413, f"HTTP 413 Content Too Large: the maximum is {BODY_BYTES_MAX} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _answer(value: Any, status: int = 200) -> Response:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "surrogatepass"), status_code=status, media_type=_OWN_TYPE)


async def _http_failure(request: Request, error: Exception) -> Response:  # noqa: ARG001
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = error.detail if isinstance(error, HTTPException) else ""
    return _answer({"error_code": status, "message": f"HTTP {status} {detail}"}, status)


async def _failure(request: Request, error: Exception) -> Response:
    logger.error("%s %s failed", request.method, request.url.path[:200], exc_info=error)
    return _answer({"error_code": 50001, "message": "The registry failed; its log says more"}, 500)
