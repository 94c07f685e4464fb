"""A client of a schema registry with Confluent's REST API: ours, Confluent's, Karapace, Apicurio and others.

A schema id never changes its meaning, so each id is requested once and cached. A client may be used by many threads.
"""

import base64
import http.client
import json
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

import attrs
from attrs import field, frozen

from ..ports.errors import BarnabasError, ConfigError
from ..ports.values import Secret
from .access import RegistryAccess

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_ANSWER_BYTES_MAX = 16 * 1024 * 1024
_CACHED_SCHEMAS_MAX = 10_000
_UNKNOWN_CACHED_S = 30.0
"""An unknown id is not requested again for this time, since corrupt messages may have any id."""
_LATEST_CACHED_S = 60.0
_PAUSE_S = 0.2
_ITEMS = "items"
"""The key of an answer that is a list."""
_NO_SUCH = {40401, 40402, 40403}
_T = TypeVar("_T")


class RegistryUnreachable(BarnabasError):
    """None of the registries has answered without an internal error."""


class RegistryRefused(BarnabasError):
    """The registry has refused the request; `error_code` is its own number (40403: no such schema)."""

    def __init__(self, message: str, error_code: int) -> None:
        super().__init__(message)
        self.error_code = error_code


@frozen
class SchemaReference:
    """`name` is used in the referring schema; subject and version identify the schema in the registry."""

    name: str
    subject: str
    version: int


@frozen(kw_only=True)
class RegisteredSchema:
    """A schema of a registry. `kind` is AVRO, JSON or PROTOBUF."""

    id: int
    kind: str
    text: str
    references: tuple[SchemaReference, ...] = ()
    subject: str = ""
    """Empty, like the version, if the schema was requested by its id."""
    version: int = 0


@frozen
class _Place:
    """One address; its string form has no password."""

    host: str
    port: int
    secure: bool
    path: str
    authorization: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{'https' if self.secure else 'http'}://{self.host}:{self.port}{self.path}"


class RegistryClient:
    """Sends requests to the registries at `urls` (a text with commas, or a sequence), to the first that answers.

    The address may contain name and password: `http://USER:PASSWORD@HOST:PORT/PATH`; a `RegistryAccess` has them apart,
    and the settings of TLS (`access_of`). An address that does not answer
    within `timeout_s`, or fails (5xx), is skipped; all are tried `tries` times.
    Raises `RegistryUnreachable`, `RegistryRefused`, and `ConfigError` for an invalid address.
    """

    def __init__(
        self,
        urls: str | Sequence[str] | RegistryAccess,
        *,
        timeout_s: float = 10.0,
        tries: int = 3,
        ssl_context: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access = access = urls if isinstance(urls, RegistryAccess) else None
        if access is not None:
            urls, ssl_context = access.urls, ssl_context or access.context()
        assert not isinstance(urls, RegistryAccess)
        given = urls.split(",") if isinstance(urls, str) else list(urls)
        user_info = None if access is None else access.user_info
        self._places = [_place(url.strip(), user_info) for url in given if url.strip()]
        if not self._places:
            raise ConfigError("give the address of a schema registry, as in http://127.0.0.1:8081")
        self.urls = tuple(dict.fromkeys(url.strip() for url in given if url.strip()))
        self._timeout_s = timeout_s
        self._tries = tries
        self._ssl = ssl_context
        self._clock = clock
        self._lock = threading.Lock()
        self._asking: dict[object, threading.Lock] = {}
        self._cached: OrderedDict[object, Any] = OrderedDict()
        self._unknown: OrderedDict[object, tuple[float, RegistryRefused]] = OrderedDict()

    def by_id(self, schema_id: int, *, serialized: bool = False) -> RegisteredSchema:
        """Return the schema of an id, cached. `serialized`: for protobuf, the descriptor in base64 instead of the
        text."""
        query = "?format=serialized" if serialized else ""

        def ask() -> RegisteredSchema:
            return _schema(self._ask("GET", f"/schemas/ids/{schema_id}{query}"), schema_id)

        return self._once(("id", schema_id, serialized), ask)

    def version(self, subject: str, version: int, *, serialized: bool = False) -> RegisteredSchema:
        """Return a version of a subject, cached: it never changes."""
        query = "?format=serialized" if serialized else ""

        def ask() -> RegisteredSchema:
            return _schema(self._ask("GET", f"/subjects/{_name(subject)}/versions/{version}{query}"))

        return self._once(("version", subject, version, serialized), ask)

    def latest(self, subject: str, *, serialized: bool = False, fresh: bool = False) -> RegisteredSchema:
        """Return the newest version of a subject; it may be up to a minute old, unless `fresh`."""
        query = "?format=serialized" if serialized else ""

        def ask() -> RegisteredSchema:
            return _schema(self._ask("GET", f"/subjects/{_name(subject)}/versions/latest{query}"))

        if fresh:
            return ask()
        minute = int(self._clock() // _LATEST_CACHED_S)
        return self._once(("latest", subject, minute, serialized), ask)

    def register(self, subject: str, kind: str, text: str, references: Sequence[SchemaReference] = ()) -> int:
        """Return the id of a schema; a new schema becomes the newest version of the subject."""
        return self._id_of("register", f"/subjects/{_name(subject)}/versions", kind, text, references)

    def look_up(self, subject: str, kind: str, text: str, references: Sequence[SchemaReference] = ()) -> int:
        """Return the id of a schema that must be a version of the subject."""
        return self._id_of("look up", f"/subjects/{_name(subject)}", kind, text, references)

    def version_of(self, subject: str, kind: str, text: str, references: Sequence[SchemaReference] = ()) -> int:
        """Return the number of a schema's version in the subject."""

        def ask() -> int:
            return int(self._ask("POST", f"/subjects/{_name(subject)}", _body(kind, text, references))["version"])

        return self._once(("version of", subject, kind, text, tuple(references)), ask)

    def subjects(self) -> list[str]:
        """Return the names of all subjects, sorted."""
        return sorted(str(each) for each in self._ask("GET", "/subjects")[_ITEMS])

    def versions(self, subject: str) -> list[int]:
        """Return the numbers of a subject's versions, the oldest first."""
        return sorted(int(each) for each in self._ask("GET", f"/subjects/{_name(subject)}/versions")[_ITEMS])

    def level(self, subject: str) -> str:
        """Return the compatibility level that a subject has, perhaps that of the whole registry."""
        answer = self._ask("GET", f"/config/{_name(subject)}?defaultToGlobal=true")
        return str(answer.get("compatibilityLevel", "unknown"))

    def check(self, subject: str, kind: str, text: str, references: Sequence[SchemaReference] = ()) -> list[str]:
        """Return why a schema is not compatible with the subject's versions; empty if it is."""
        path = f"/compatibility/subjects/{_name(subject)}/versions?verbose=true"
        answer = self._ask("POST", path, _body(kind, text, references))
        if answer.get("is_compatible"):
            return []
        return [str(each) for each in answer.get("messages") or ()] or ["the registry does not say why"]

    def referred(self, references: Sequence[SchemaReference], *, serialized: bool = False) -> Mapping[str, str]:
        """Return name → text of all schemas that these references need, directly or indirectly, in the order of their
        dependencies."""
        found: dict[str, str] = {}
        self._gather(references, found, serialized=serialized, around=())
        return found

    def _gather(
        self,
        references: Sequence[SchemaReference],
        found: dict[str, str],
        *,
        serialized: bool,
        around: tuple[str, ...],
    ) -> None:
        for reference in references:
            if reference.name in found or reference.name in around:
                continue
            there = self.version(reference.subject, reference.version, serialized=serialized)
            self._gather(there.references, found, serialized=serialized, around=(*around, reference.name))
            found[reference.name] = there.text

    def _id_of(self, verb: str, path: str, kind: str, text: str, references: Sequence[SchemaReference]) -> int:
        def ask() -> int:
            return int(self._ask("POST", path, _body(kind, text, references))["id"])

        return self._once((verb, path, kind, text, tuple(references)), ask)

    def _once(self, key: object, ask: Callable[[], _T]) -> _T:
        """Return the cached value; of several threads that need it, one requests it and the others wait."""
        with self._lock:
            if key in self._cached:
                self._cached.move_to_end(key)
                return self._cached[key]  # type: ignore[no-any-return]  # cached under its own key
            gone = self._unknown.get(key)
            if gone is not None and self._clock() < gone[0]:
                raise gone[1]
            mine = self._asking.setdefault(key, threading.Lock())
        with mine:
            with self._lock:
                if key in self._cached:
                    return self._cached[key]  # type: ignore[no-any-return]
            try:
                found = ask()
            except RegistryRefused as error:
                if error.error_code in _NO_SUCH:
                    self._keep(self._unknown, key, (self._clock() + _UNKNOWN_CACHED_S, error))
                raise
            finally:
                with self._lock:
                    self._asking.pop(key, None)
            self._keep(self._cached, key, found)
            return found

    def _keep(self, where: OrderedDict[object, Any], key: object, value: object) -> None:
        with self._lock:
            where[key] = value
            while len(where) > _CACHED_SCHEMAS_MAX:
                where.popitem(last=False)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        faults: dict[str, str] = {}
        for attempt in range(self._tries):
            if attempt:
                time.sleep(_PAUSE_S * attempt)
            for place in self._places:
                try:
                    status, answer = self._exchange(place, method, path, body)
                except (OSError, http.client.HTTPException, ValueError) as error:
                    faults[str(place)] = getattr(error, "strerror", None) or str(error) or type(error).__name__
                    continue
                if status < 300:
                    return answer
                code = int(answer.get("error_code", status))
                text = f"schema registry {place}: {answer.get('message') or http.client.responses.get(status, status)}"
                if status < 500:
                    raise RegistryRefused(f"{text}{_hint(status, path)}", code)
                faults[str(place)] = text
        faults_text = "; ".join(f"{where}: {fault}" for where, fault in faults.items())
        raise RegistryUnreachable(f"no schema registry answers ({faults_text}); start one, or correct the address")

    def _exchange(
        self, place: _Place, method: str, path: str, body: Mapping[str, Any] | None
    ) -> tuple[int, dict[str, Any]]:
        headers = {"Accept": f"{_CONTENT_TYPE}, application/json"}
        if place.authorization is not None:
            headers["Authorization"] = place.authorization
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            headers["Content-Type"] = _CONTENT_TYPE
        connection = self._connection(place)
        try:
            connection.request(method, place.path + path, body=content, headers=headers)
            response = connection.getresponse()
            data = response.read(_ANSWER_BYTES_MAX + 1)
        finally:
            connection.close()
        if len(data) > _ANSWER_BYTES_MAX:
            raise ValueError(f"an answer of more than {_ANSWER_BYTES_MAX} bytes")
        return response.status, _object(data, response.status)

    def _connection(self, place: _Place) -> http.client.HTTPConnection:
        if not place.secure:
            return http.client.HTTPConnection(place.host, place.port, timeout=self._timeout_s)
        context = self._ssl or ssl.create_default_context()
        return http.client.HTTPSConnection(place.host, place.port, timeout=self._timeout_s, context=context)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the client by its addresses, without its cache, for another process (a Spark worker)."""
        return RegistryClient, (self._access or self.urls,)


def _place(url: str, user_info: Secret[str] | None = None) -> _Place:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"schema registry {url!r}: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"schema registry {url!r}: expected an address like http://127.0.0.1:8081")
    secure = parts.scheme == "https"
    authorization = None
    if user_info is not None or parts.username is not None:
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        if user_info is not None:
            pair = user_info.value
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    return _Place(parts.hostname, port or (443 if secure else 80), secure, parts.path.rstrip("/"), authorization)


def _name(subject: str) -> str:
    return quote(subject, safe="")


def _body(kind: str, text: str, references: Sequence[SchemaReference]) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": text}
    if kind != "AVRO":
        body["schemaType"] = kind
    if references:
        body["references"] = [attrs.asdict(each) for each in references]
    return body


def _object(data: bytes, status: int) -> dict[str, Any]:
    try:
        answer = json.loads(data)
    except ValueError:
        if status < 300:
            raise
        answer = {}
    if isinstance(answer, list):
        return {_ITEMS: answer}
    return answer if isinstance(answer, dict) else {}


def _schema(answer: Mapping[str, Any], schema_id: int | None = None) -> RegisteredSchema:
    try:
        return RegisteredSchema(
            id=int(answer["id"]) if schema_id is None else schema_id,
            kind=str(answer.get("schemaType") or "AVRO"),
            text=str(answer["schema"]),
            references=tuple(
                SchemaReference(str(each["name"]), str(each["subject"]), int(each["version"]))
                for each in answer.get("references") or ()
            ),
            subject=str(answer.get("subject", "")),
            version=int(answer.get("version", 0)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RegistryUnreachable(f"the server at the address is not a schema registry: {error!r}") from error


def _hint(status: int, path: str) -> str:
    if status in (401, 403):
        return "; give name and password in the address: http://NAME:PASSWORD@HOST:PORT, or by basic.auth.user.info"
    if status == 404 and path.startswith("/schemas/ids"):
        return "; was the message written with another registry?"
    if status == 404 and path.partition("?")[0].endswith("/versions/latest"):
        return "; register a schema of this subject, or give the encoder one: a class, a text or a Path"
    if status == 404:
        return "; register the schema, or let the encoder do it (auto_register=True)"
    if status == 409:
        return "; change the schema so that it is compatible, or the subject's compatibility"
    return ""
