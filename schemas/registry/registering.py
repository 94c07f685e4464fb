"""Registration of a schema: its existing id, a record to write, or an error."""

from __future__ import annotations

from attrs import evolve

from ...ports.values import frozen
from ..formats.compatibility import Compatibility, conflicts
from ..formats.parsed import InvalidSchema, ParsedSchema, UnsupportedFormat
from .errors import incompatible, invalid_schema, not_permitted
from .library import Library
from .records import Record, SchemaRecord
from .state import Subjects
from .words import ID_MAX, LATEST, VERSION_MAX, Content, Mode, Reference, Version


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
