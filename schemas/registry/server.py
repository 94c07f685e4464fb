"""The Confluent REST API over HTTP, and its server with threads of its own: for a command, and in a broker process."""

from __future__ import annotations

import json
import logging
import math
from asyncio import timeout, wrap_future
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any
from urllib.parse import unquote

from attrs import evolve
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ...app.clients.shared.bootstrap import Bootstrap
from ...app.compose.http_server import HttpServer
from ...app.compose.https import BasicAuthentication, HttpSecurity
from ...ports.errors import BarnabasError, ConfigError
from ...ports.values import frozen
from ..formats.compatibility import Compatibility, conflicts
from ..formats.parsed import AVRO, FORMATS, PROTOBUF, InvalidSchema, ParsedSchema, UnsupportedFormat
from .errors import (
    RegistryError,
    incompatible,
    invalid_schema,
    invalid_version,
    not_permitted,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from .library import Library
from .members import config_members, content_members, version_members
from .records import ConfigRecord, ModeRecord, Noop, Record, SchemaRecord, SubjectDeleted, packed
from .registry import Registry
from .state import Subjects
from .words import DEFAULT_LEVEL, ID_MAX, LATEST, VERSION_MAX, Config, Content, Mode, Reference, Version, guid_of

logger = logging.getLogger("barnabas.schemas.registry")


class RegistryServer:
    """Serves a registry between `start` and `stop`."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        listen: tuple[str, int],
        *,
        topic: str,
        validate_defaults: bool = False,
        security: HttpSecurity | None = None,
    ) -> None:
        """`security`: TLS and the users of the HTTP server; None: everyone may connect, without TLS."""
        self._registry = Registry(bootstrap, topic, validate_defaults=validate_defaults)
        self._listen = listen
        self._bootstrap = bootstrap
        self._security = security or HttpSecurity()
        self._server: HttpServer | None = None
        self.listener = ""
        """The URL while it serves."""

    def start(self) -> str:
        """Start, and return the URL when all schemas are read, or cannot be read now. Raises `ConfigError`."""
        self._server = HttpServer("the registry", self._listen, self._security.tls)
        self._registry.start()
        self._server.start(make_app(self._registry, self._security.users))
        if not self._registry.following.wait_loaded():
            trouble = self._registry.following.trouble
            if isinstance(trouble, ConfigError):
                self.stop()
                raise trouble
            logger.warning("serving without schemas until %s can be reached", self._bootstrap)
        self.listener = self._server.url
        return self.listener

    def stop(self) -> None:
        """Answer the received requests, then end the threads."""
        if self._server is not None:
            self._server.stop()
        self._registry.stop()

    def wait(self, timeout: float) -> bool:
        """Return True when it has stopped serving."""
        return self._server is not None and self._server.wait(timeout)


BODY_BYTES_MAX = 8 * 1024 * 1024
BODY_S = 30.0
_OWN_TYPE = "application/vnd.schemaregistry.v1+json"
_SPOKEN = (_OWN_TYPE, "application/vnd.schemaregistry+json", "application/json")
_TAKEN = (*_SPOKEN, "application/octet-stream")


# A request of the REST API, and its parameters.

_DEFAULT_CONTEXT = ":.:"
_SUBJECT_CHARS_MAX = 1000
_REFERENCES_MAX = 1000


# Registration of a schema: its existing id, a record to write, or an error.


@frozen(kw_only=True)
class Given:
    """A schema of a request. `id`, `version`: for a subject in mode IMPORT; 0: not given."""

    subject: str
    content: Content
    id: int = 0
    version: int = 0
    normalize: bool = False


def read(given: Given, subjects: Subjects, library: Library) -> tuple[Content, ParsedSchema]:
    """Return the content to store, and the parsed schema. Raises `RegistryError`."""
    content = given.content
    if any(each.version == LATEST for each in content.references):
        content = evolve(content, references=tuple(_newest(each, subjects) for each in content.references))
    try:
        parsed = library.parse(content, subjects, fresh=True)
    except (InvalidSchema, UnsupportedFormat) as error:
        raise invalid_schema(error) from error
    normal = given.normalize or subjects.normalizes(given.subject)
    return evolve(content, text=parsed.normalized if normal else parsed.canonical), parsed


def find(given: Given, subjects: Subjects, library: Library, *, deleted: bool = False) -> Version | None:
    """Return the newest version of the subject with this schema, or None. Raises `RegistryError`."""
    content, parsed = read(given, subjects, library)
    return _find(given, content, parsed, subjects, library, deleted=deleted)


def register(given: Given, subjects: Subjects, library: Library) -> tuple[Version, list[Record]]:
    """Return the version of the subject with this schema, and the records to write. Raises `RegistryError`."""
    mode = subjects.mode(given.subject)
    if mode is Mode.READONLY:
        raise not_permitted(f"Subject {given.subject} is in read-only mode")
    content, parsed = read(given, subjects, library)
    if mode is Mode.IMPORT:
        return _imported(given, content, subjects)
    if given.id:
        raise not_permitted(f"Subject {given.subject} is not in import mode: leave the id out")
    found = _find(given, content, parsed, subjects, library)
    if found is not None:
        return found, []
    why = compare(given.subject, parsed, subjects.of_subject(given.subject), subjects, library)
    if why:
        raise incompatible(given.subject, why)
    number = _next_version(given, subjects)
    return _new(given.subject, number, subjects.id_of(content) or _next_id(subjects), content)


def compare(
    subject: str,
    parsed: ParsedSchema,
    older: list[Version],
    subjects: Subjects,
    library: Library,
) -> list[str]:
    """Return why the schema is incompatible with those versions (oldest first) by the level; empty if compatible."""
    level = subjects.level(subject)
    if level is Compatibility.NONE:
        return []
    try:
        looked_at = older if level.transitive else older[-1:]
        return conflicts(level, parsed, [(each.version, library.parse(each.content, subjects)) for each in looked_at])
    except (InvalidSchema, UnsupportedFormat) as error:
        raise invalid_schema(f"an earlier version is invalid: {error}") from error


def _find(
    given: Given, content: Content, parsed: ParsedSchema, subjects: Subjects, library: Library, *, deleted: bool = False
) -> Version | None:
    versions = subjects.of_subject(given.subject, deleted=deleted)
    for version in reversed(versions):
        if version.content == content:
            return version
    if not given.normalize:
        return None
    for version in reversed(versions):
        if evolve(version.content, text="") != evolve(content, text=""):
            continue
        if library.parse(version.content, subjects).normalized == parsed.normalized:
            return version
    return None


def _imported(given: Given, content: Content, subjects: Subjects) -> tuple[Version, list[Record]]:
    if not given.id:
        raise not_permitted(f"Subject {given.subject} is in import mode: give the schema's id")
    known = subjects.contents.get(given.id)
    if known is not None and known != content:
        raise not_permitted(f"Overwrite new schema with id {given.id} is not permitted: the id has another schema")
    number = given.version or _next_version(given, subjects)
    found = subjects.version(given.subject, number, deleted=True)
    if found is not None and (found.id, found.content) == (given.id, content) and not found.deleted:
        return found, []
    return _new(given.subject, number, given.id, content)


def _new(subject: str, number: int, own_id: int, content: Content) -> tuple[Version, list[Record]]:
    made = Version(subject=subject, version=number, id=own_id, content=content)
    return made, [SchemaRecord(subject, number, made)]


def _next_version(given: Given, subjects: Subjects) -> int:
    number = max(subjects.versions.get(given.subject, {}), default=0) + 1
    if number > VERSION_MAX:
        raise not_permitted(f"Subject {given.subject} has no free version number")
    if given.version not in (0, number) and subjects.mode(given.subject) is not Mode.IMPORT:
        raise not_permitted(f"The next version of subject {given.subject} is {number}, not {given.version}")
    return number


def _next_id(subjects: Subjects) -> int:
    if subjects.last_id >= ID_MAX:
        raise not_permitted("there is no free schema id")
    return subjects.last_id + 1


def _newest(reference: Reference, subjects: Subjects) -> Reference:
    if reference.version != LATEST:
        return reference
    versions = subjects.of_subject(reference.subject)
    if not versions:
        raise invalid_schema(f"reference {reference.name}: subject {reference.subject} has no versions")
    return evolve(reference, version=versions[-1].version)


@frozen(kw_only=True)
class Call:
    """The parts of the path, the query and the body, all untrusted text."""

    registry: Registry
    path: Mapping[str, str]
    query: Mapping[str, str]
    pairs: Sequence[tuple[str, str]] = ()
    """The whole query, in which names may be repeated."""
    body: bytes = b""

    @property
    def subjects(self) -> Subjects:
        """Return the subjects of the registry. Raises `RegistryError`."""
        return self.registry.subjects()

    @property
    def subject(self) -> str:
        """Return the subject in the path. Raises `RegistryError` for one of another context than the default one."""
        return subject_name(self.path["subject"])

    @property
    def version(self) -> int:
        """Return the version in the path; "latest" is `LATEST`. Raises `RegistryError`."""
        given = self.path["version"]
        if given in ("latest", "-1"):
            return LATEST
        number = _number(given)
        if not 1 <= number <= VERSION_MAX:
            raise invalid_version(given)
        return number

    @property
    def id(self) -> int:
        """Return the id in the path. Raises `RegistryError`."""
        number = _number(self.path["id"])
        if not 0 <= number <= ID_MAX:
            raise RegistryError(404, "HTTP 404 Not Found: an id is a whole number")
        return number

    def flag(self, name: str) -> bool:
        """Return True if the query has the flag."""
        return self.query.get(name, "").lower() == "true"

    def metadata(self) -> dict[str, str]:
        """Return the pairs of `key` and `value` in the query. Raises `RegistryError`."""
        keys, values = ([value for name, value in self.pairs if name == wanted] for wanted in ("key", "value"))
        if len(keys) != len(values) or not keys:
            raise RegistryError(422, "key, value: give a value for each key, as in ?key=owner&value=payments")
        return dict(zip(keys, values, strict=True))

    def formatted(self, content: Content) -> str:
        """Return the text in the format of the query: `resolved` Avro, `serialized` Protobuf. Raises
        `RegistryError`."""
        wanted = self.query.get("format", "")
        if (content.format, wanted) not in ((AVRO, "resolved"), (PROTOBUF, "serialized")):
            return content.text
        try:
            text: str = getattr(self.registry.library.parse(content, self.subjects), wanted)
        except (InvalidSchema, UnsupportedFormat) as error:
            raise invalid_schema(error) from error
        return text

    def window(self, found: list[Any]) -> list[Any]:
        """Return the part that offset and limit of the query select."""
        offset, limit = _number(self.query.get("offset", "0")), _number(self.query.get("limit", "-1"))
        return found[max(0, offset) :][: limit if limit >= 0 else None]

    def members(self) -> dict[str, Any]:
        """Return the body, a JSON object. Raises `RegistryError`."""
        try:
            value = json.loads(self.body, parse_constant=_finite, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            raise RegistryError(400, f"The body is not JSON: {str(error) or 'it nests too deep'}") from error
        if not isinstance(value, dict):
            raise RegistryError(422, "The body is not a JSON object")
        return value

    def given(self) -> Given:
        """Return the schema in the body. Raises `RegistryError`."""
        members = self.members()
        content = Content(
            _typed(members, "schemaType", str) or AVRO,
            _typed(members, "schema", str) or "",
            tuple(_reference(each) for each in _listed(members.get("references"))),
            metadata=packed(_typed(members, "metadata", dict)),
            rule_set=packed(_typed(members, "ruleSet", dict)),
        )
        return Given(
            subject=self.subject if "subject" in self.path else "",
            content=content,
            id=max(0, _whole(members, "id", ID_MAX)),
            version=max(0, _whole(members, "version", VERSION_MAX)),
            normalize=self.flag("normalize"),
        )

    def config(self) -> Config:
        """Return the configuration in the body. Raises `RegistryError`."""
        members = self.members()
        level = _typed(members, "compatibility", str)
        known = ("compatibility", "normalize")
        unknown = sorted(key for key, value in members.items() if value is not None and key not in known)
        if unknown:
            raise RegistryError(422, f"{', '.join(unknown)[:200]}: unknown; known: {', '.join(known)}")
        try:
            return Config(level=Compatibility(level) if level else None, normalize=_typed(members, "normalize", bool))
        except ValueError:
            text = f"Invalid compatibility level {level!r:.100}. Valid values are {', '.join(Compatibility)}"
            raise RegistryError(42203, text) from None

    def mode(self) -> Mode:
        """Return the mode in the body. Raises `RegistryError`."""
        mode = _typed(self.members(), "mode", str)
        try:
            return Mode(mode or "")
        except ValueError:
            text = f"Invalid mode {mode!r:.100}. Valid values are {', '.join(Mode)}"
            raise RegistryError(42204, text) from None


def subject_name(given: str) -> str:
    """Remove the name of the default context. Raises `RegistryError` for another one."""
    name = given.removeprefix(_DEFAULT_CONTEXT)
    if name.startswith(":."):
        raise not_permitted(f"Subject {given:.200}: contexts other than the default one are not supported")
    if not name or len(name) > _SUBJECT_CHARS_MAX or not name.isprintable():
        raise RegistryError(42208, "A subject has a name of 1 to 1000 printable characters")
    return name


def _reference(given: Any) -> Reference:
    if not isinstance(given, dict):
        raise RegistryError(422, "references: a list of objects with name, subject and version")
    name, subject = _typed(given, "name", str), _typed(given, "subject", str)
    if not name or not subject:
        raise RegistryError(422, "references: each has a name, a subject and a version")
    version = _whole(given, "version", VERSION_MAX)
    if version < 1 and version != LATEST:
        raise invalid_version(str(version))
    return Reference(name, subject_name(subject), version)


def _listed(given: Any) -> list[Any]:
    if given is None:
        return []
    if not isinstance(given, list) or len(given) > _REFERENCES_MAX:
        raise RegistryError(422, f"references: a list of at most {_REFERENCES_MAX}")
    return given


def _typed(members: dict[str, Any], name: str, kind: type[Any]) -> Any:
    value = members.get(name)
    if value is not None and not isinstance(value, kind):
        raise RegistryError(422, f"{name}: expected {kind.__name__}, not {value!r:.100}")
    return value


def _whole(members: dict[str, Any], name: str, most: int) -> int:
    value = members.get(name)
    if value is None:
        return 0
    if type(value) is not int or not -1 <= value <= most:
        raise RegistryError(422, f"{name}: expected a whole number up to {most}, not {value!r:.100}")
    return value


def _finite(text: str) -> float:
    """Parse a float. Raises `ValueError` for NaN and infinities, which other readers of the topic refuse."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.100} is not a JSON number")
    return value


def _number(text: str) -> int:
    """Parse a whole number; return an invalid one for anything else."""
    return (
        int(text) if len(text) <= 11 and text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() else -2
    )


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


# Deletions, and changes of levels and modes: the records to write, or an error.


def delete_version(subject: str, number: int, subjects: Subjects, *, permanent: bool) -> tuple[int, list[Record]]:
    """Delete a version, first softly, then permanently; return its number. Raises `RegistryError`."""
    _may_change(subject, subjects)
    if number == LATEST:
        versions = subjects.of_subject(subject, deleted=permanent)
        if not versions:
            raise subject_not_found(subject)
        number = versions[-1].version
    version = subjects.version(subject, number, deleted=True)
    if version is None:
        raise version_not_found(number) if subjects.versions.get(subject) else subject_not_found(subject)
    _check_unreferenced([version], subjects)
    if permanent:
        if not version.deleted:
            text = f"Subject '{subject}' Version {number} was not deleted first before being permanently deleted"
            raise RegistryError(40407, text)
        return number, _gone([version], subjects)
    if version.deleted:
        text = f"Subject '{subject}' Version {number} was soft deleted. Set permanent=true to delete permanently"
        raise RegistryError(40406, text)
    records: list[Record] = [SchemaRecord(subject, number, evolve(version, deleted=True))]
    last = len(subjects.of_subject(subject)) == 1
    return number, records + (_settings_gone(subject, subjects) if last else [])


def delete_subject(subject: str, subjects: Subjects, *, permanent: bool) -> tuple[list[int], list[Record]]:
    """Delete a subject, first softly, then permanently; return the numbers of its versions. Raises `RegistryError`."""
    _may_change(subject, subjects)
    everything = subjects.of_subject(subject, deleted=True)
    if not everything:
        raise subject_not_found(subject)
    standing = [each for each in everything if not each.deleted]
    if permanent:
        if standing:
            text = f"Subject '{subject}' was not deleted first before being permanently deleted"
            raise RegistryError(40405, text)
        _check_unreferenced(everything, subjects)
        return [each.version for each in everything], _gone(everything, subjects)
    if not standing:
        text = f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
        raise RegistryError(40404, text)
    _check_unreferenced(standing, subjects)
    numbers = [each.version for each in standing]
    return numbers, [SubjectDeleted(subject, numbers[-1]), *_settings_gone(subject, subjects)]


def set_config(subject: str | None, config: Config, subjects: Subjects) -> tuple[Config, list[Record]]:
    """Set a configuration; None does not change. Return the new one."""
    _may_change(subject, subjects)
    old = subjects.configs.get(subject, Config())
    new = Config(
        level=old.level if config.level is None else config.level,
        normalize=old.normalize if config.normalize is None else config.normalize,
    )
    return new, [ConfigRecord(subject, new)]


def delete_config(subject: str | None, subjects: Subjects) -> tuple[Config, list[Record]]:
    """Delete and return the configuration. Raises `RegistryError` if the subject has none."""
    _may_change(subject, subjects)
    old = subjects.configs.get(subject)
    if old is None and subject is not None:
        raise subject_not_found(subject)
    return old or Config(), [] if old is None else [ConfigRecord(subject, None)]


def set_mode(subject: str | None, mode: Mode, subjects: Subjects, *, force: bool) -> tuple[Mode, list[Record]]:
    """Set the mode. Raises `RegistryError` for IMPORT while there are schemas, unless forced."""
    if mode is Mode.IMPORT and not force:
        standing = [subject] if subject is not None else list(subjects.versions)
        if any(subjects.of_subject(each) for each in standing):
            raise not_permitted("Cannot import since found existing subjects; set force=true to import all the same")
    return mode, [ModeRecord(subject, mode)]


def delete_mode(subject: str | None, subjects: Subjects) -> tuple[Mode, list[Record]]:
    """Delete and return the mode. Raises `RegistryError` if the subject has none."""
    old = subjects.modes.get(subject)
    if old is None and subject is not None:
        raise subject_not_found(subject)
    return old or Mode.READWRITE, [] if old is None else [ModeRecord(subject, None)]


def _may_change(subject: str | None, subjects: Subjects) -> None:
    mode = subjects.modes.get(None, Mode.READWRITE) if subject is None else subjects.mode(subject)
    if mode is Mode.READONLY:
        raise not_permitted(f"{'Everything' if subject is None else f'Subject {subject}'} is in read-only mode")


def _check_unreferenced(versions: list[Version], subjects: Subjects) -> None:
    for version in versions:
        needed_by = subjects.referrers(version.subject, version.version)
        if needed_by:
            place = f"version {version.version} of subject {version.subject}"
            other = f"{needed_by[0].subject} version {needed_by[0].version}"
            raise RegistryError(42206, f"One or more references exist to {place}, such as from {other}")


def _gone(versions: list[Version], subjects: Subjects) -> list[Record]:
    gone: list[Record] = [SchemaRecord(each.subject, each.version, None) for each in versions]
    return [*gone, Noop(subjects.last_id)]


def _settings_gone(subject: str, subjects: Subjects) -> list[Record]:
    records: list[Record] = []
    if subject in subjects.modes:
        records.append(ModeRecord(subject, None))
    if subject in subjects.configs:
        records.append(ConfigRecord(subject, None))
    return records


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
        except BarnabasError:  # one of them is a `TimeoutError` as well
            raise
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
