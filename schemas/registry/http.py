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
from ..formats.parsed import FORMATS
from .call import Call
from .changing import delete_config, delete_mode, delete_subject, delete_version, set_config, set_mode
from .errors import RegistryError, schema_not_found, subject_not_found, version_not_found
from .members import config_members, content_members, version_members
from .registering import Given, compare, find, read, register
from .registry import Registry
from .state import Subjects
from .words import DEFAULT_LEVEL, LATEST, Config, Content, Mode, Version, guid_of

logger = logging.getLogger("barnabas.schemas.registry")

BODY_BYTES_MAX = 8 * 1024 * 1024
BODY_S = 30.0
_OWN_TYPE = "application/vnd.schemaregistry.v1+json"
_SPOKEN = (_OWN_TYPE, "application/vnd.schemaregistry+json", "application/json")
_TAKEN = (*_SPOKEN, "application/octet-stream")

Handle = Callable[[Call], Any]


def get_schema(call: Call) -> dict[str, Any]:
    content = _content(call)
    most = {"maxId": call.subjects.last_id} if call.flag("fetchMaxId") else {}
    return {**content_members(content, call.formatted(content)), **most}


def get_schema_by_guid(call: Call) -> dict[str, Any]:
    content = call.subjects.contents[_ids_of_guid(call)[0]]
    return {**content_members(content, call.formatted(content)), "guid": guid_of(content)}


def get_ids_of_guid(call: Call) -> list[dict[str, Any]]:
    return [{"context": ".", "id": each} for each in _ids_of_guid(call)]


def get_schema_text(call: Call) -> str:
    return call.formatted(_content(call))


def get_subjects_of_schema(call: Call) -> list[str]:
    return call.window(sorted({each.subject for each in _uses(call)}))


def get_versions_of_schema(call: Call) -> list[dict[str, Any]]:
    return call.window([{"subject": each.subject, "version": each.version} for each in _uses(call)])


def list_schemas(call: Call) -> list[dict[str, Any]]:
    prefix = call.query.get("subjectPrefix", "").removeprefix(":*:")
    known, deleted, latest = call.subjects, call.flag("deleted"), call.flag("latestOnly")
    found: list[Version] = []
    for subject in sorted(known.versions):
        if subject.startswith(prefix):
            versions = known.of_subject(subject, deleted=deleted)
            found += versions[-1:] if latest else versions
    return [version_members(each) for each in call.window(found)]


def list_types(call: Call) -> list[str]:  # noqa: ARG001
    return list(FORMATS)


def list_contexts(call: Call) -> list[str]:  # noqa: ARG001
    return ["."]


def get_config(call: Call) -> dict[str, Any]:
    subject, subjects = _scope(call), call.subjects
    found = subjects.configs.get(subject)
    if found is None and subject is not None and not call.flag("defaultToGlobal"):
        text = f"Subject '{subject}' does not have subject-level compatibility configured"
        raise RegistryError(40408, text)
    if found is None:
        found = subjects.configs.get(None, Config())
    level = found.level or (subjects.level(subject) if subject is not None else DEFAULT_LEVEL)
    return config_members(Config(level=level, normalize=found.normalize), "compatibilityLevel")


def put_config(call: Call) -> Future[Any]:
    subject, config = _scope(call), call.config()

    def decide(subjects: Subjects) -> Any:
        new, records = set_config(subject, config, subjects)
        return config_members(new, "compatibility"), records

    return call.registry.change(decide)


def remove_config(call: Call) -> Future[Any]:
    subject = _scope(call)

    def decide(subjects: Subjects) -> Any:
        old, records = delete_config(subject, subjects)
        return config_members(Config(level=old.level or DEFAULT_LEVEL), "compatibilityLevel"), records

    return call.registry.change(decide)


def get_mode(call: Call) -> dict[str, str]:
    subject, subjects = _scope(call), call.subjects
    found = subjects.modes.get(subject)
    if found is None and subject is not None and not call.flag("defaultToGlobal"):
        raise RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")
    return {"mode": found or subjects.modes.get(None, Mode.READWRITE)}


def put_mode(call: Call) -> Future[Any]:
    subject, mode, force = _scope(call), call.mode(), call.flag("force")

    def decide(subjects: Subjects) -> Any:
        new, records = set_mode(subject, mode, subjects, force=force)
        return {"mode": new}, records

    return call.registry.change(decide)


def remove_mode(call: Call) -> Future[Any]:
    subject = _scope(call)

    def decide(subjects: Subjects) -> Any:
        old, records = delete_mode(subject, subjects)
        return {"mode": old}, records

    return call.registry.change(decide)


def _scope(call: Call) -> str | None:
    return call.subject if "subject" in call.path else None


def _ids_of_guid(call: Call) -> list[int]:
    """Return the ids of the content with this GUID, the smallest first. Raises `RegistryError`."""
    guid = call.path["guid"].lower()
    found = sorted(number for number, content in call.subjects.contents.items() if guid_of(content) == guid)
    if not found:
        raise schema_not_found(call.path["guid"][:100])
    return found


def _content(call: Call) -> Content:
    found = call.subjects.contents.get(call.id)
    if found is None:
        raise schema_not_found(call.id)
    return found


def _uses(call: Call) -> list[Version]:
    _content(call)
    subjects, deleted = call.subjects, call.flag("deleted")
    places = sorted(subjects.uses.get(call.id, ()))
    return [each for place in places if (each := subjects.version(*place, deleted=deleted)) is not None]


# Routes for subjects, their versions, and compatibility checks.


def list_subjects(call: Call) -> list[str]:
    prefix = call.query.get("subjectPrefix", "").removeprefix(":*:")
    known, deleted, only = call.subjects, call.flag("deleted"), call.flag("deletedOnly")
    found = []
    for subject in sorted(known.versions):
        standing = bool(known.of_subject(subject))
        if subject.startswith(prefix) and ((not standing) if only else (standing or deleted)):
            found.append(subject)
    return call.window(found)


def list_versions(call: Call) -> list[int]:
    deleted, only = call.flag("deleted"), call.flag("deletedOnly")
    versions = call.subjects.of_subject(call.subject, deleted=deleted or only)
    if not versions:
        raise subject_not_found(call.subject)
    return call.window([each.version for each in versions if each.deleted or not only])


def get_latest_with_metadata(call: Call) -> dict[str, Any]:
    """Return the newest version whose metadata have these properties."""
    wanted = call.metadata().items()
    versions = call.subjects.of_subject(call.subject, deleted=call.flag("deleted"))
    if not versions:
        raise subject_not_found(call.subject)
    for version in reversed(versions):
        metadata = json.loads(version.content.metadata) if version.content.metadata else {}
        properties = metadata.get("properties")
        if isinstance(properties, dict) and wanted <= properties.items():
            return version_members(version, call.formatted(version.content))
    raise schema_not_found()


def get_version(call: Call) -> dict[str, Any]:
    version = _version(call, call.subjects, deleted=call.flag("deleted"))
    return version_members(version, call.formatted(version.content))


def get_version_schema(call: Call) -> str:
    return call.formatted(_version(call, call.subjects, deleted=call.flag("deleted")).content)


def referenced_by(call: Call) -> list[int]:
    version = _version(call, call.subjects, deleted=True)
    return sorted({each.id for each in call.subjects.referrers(version.subject, version.version)})


def register_schema(call: Call) -> dict[str, Any] | Future[Any]:
    """Register a schema; an existing version is found without the brokers."""
    given, library = call.given(), call.registry.library
    subjects = call.subjects
    if not given.id and subjects.mode(given.subject) is Mode.READWRITE:
        found = find(given, subjects, library)
        if found is not None:
            return {"id": found.id, "guid": guid_of(found.content)}

    def decide(subjects: Subjects) -> Any:
        made, records = register(given, subjects, library)
        return {"id": made.id, "guid": guid_of(made.content)}, records

    return call.registry.change(decide)


def look_up(call: Call) -> dict[str, Any]:
    given, subjects, deleted = call.given(), call.subjects, call.flag("deleted")
    if not subjects.of_subject(given.subject, deleted=deleted):
        raise subject_not_found(given.subject)
    found = find(given, subjects, call.registry.library, deleted=deleted)
    if found is None:
        raise schema_not_found()
    return version_members(found)


def remove_subject(call: Call) -> Future[Any]:
    subject, permanent = call.subject, call.flag("permanent")
    return call.registry.change(lambda subjects: delete_subject(subject, subjects, permanent=permanent))


def remove_version(call: Call) -> Future[Any]:
    subject, number, permanent = call.subject, call.version, call.flag("permanent")
    return call.registry.change(lambda subjects: delete_version(subject, number, subjects, permanent=permanent))


def check_all_versions(call: Call) -> dict[str, Any]:
    given, subjects = call.given(), call.subjects
    return _checked(call, given, subjects.of_subject(given.subject), subjects)


def check_version(call: Call) -> dict[str, Any]:
    given, subjects = call.given(), call.subjects
    if call.version == LATEST:
        return _checked(call, given, subjects.of_subject(given.subject)[-1:], subjects)
    return _checked(call, given, [_version(call, subjects)], subjects)


def _checked(call: Call, given: Given, older: list[Version], subjects: Subjects) -> dict[str, Any]:
    _, parsed = read(given, subjects, call.registry.library)
    why = compare(given.subject, parsed, older, subjects, call.registry.library)
    return {"is_compatible": not why, **({"messages": why} if call.flag("verbose") else {})}


def _version(call: Call, subjects: Subjects, *, deleted: bool = False) -> Version:
    subject, number = call.subject, call.version
    versions = subjects.of_subject(subject, deleted=deleted)
    if not versions:
        raise subject_not_found(subject)
    if number == LATEST:
        return versions[-1]
    found = subjects.version(subject, number, deleted=deleted)
    if found is None:
        raise version_not_found(number)
    return found


_ROUTES: tuple[tuple[str, str, Handle], ...] = (
    ("GET", "/subjects", list_subjects),
    ("POST", "/subjects/{subject}", look_up),
    ("DELETE", "/subjects/{subject}", remove_subject),
    ("GET", "/subjects/{subject}/metadata", get_latest_with_metadata),
    ("GET", "/subjects/{subject}/versions", list_versions),
    ("POST", "/subjects/{subject}/versions", register_schema),
    ("GET", "/subjects/{subject}/versions/{version}", get_version),
    ("DELETE", "/subjects/{subject}/versions/{version}", remove_version),
    ("GET", "/subjects/{subject}/versions/{version}/schema", get_version_schema),
    ("GET", "/subjects/{subject}/versions/{version}/referencedby", referenced_by),
    ("POST", "/compatibility/subjects/{subject}/versions", check_all_versions),
    ("POST", "/compatibility/subjects/{subject}/versions/{version}", check_version),
    ("GET", "/schemas", list_schemas),
    ("GET", "/schemas/types", list_types),
    ("GET", "/schemas/ids/{id}", get_schema),
    ("GET", "/schemas/ids/{id}/schema", get_schema_text),
    ("GET", "/schemas/ids/{id}/subjects", get_subjects_of_schema),
    ("GET", "/schemas/ids/{id}/versions", get_versions_of_schema),
    ("GET", "/schemas/guids/{guid}", get_schema_by_guid),
    ("GET", "/schemas/guids/{guid}/ids", get_ids_of_guid),
    ("GET", "/config", get_config),
    ("PUT", "/config", put_config),
    ("DELETE", "/config", remove_config),
    ("GET", "/config/{subject}", get_config),
    ("PUT", "/config/{subject}", put_config),
    ("DELETE", "/config/{subject}", remove_config),
    ("GET", "/mode", get_mode),
    ("PUT", "/mode", put_mode),
    ("DELETE", "/mode", remove_mode),
    ("GET", "/mode/{subject}", get_mode),
    ("PUT", "/mode/{subject}", put_mode),
    ("DELETE", "/mode/{subject}", remove_mode),
    ("GET", "/contexts", list_contexts),
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
