"""Routes for subjects, their versions, and compatibility checks."""

from __future__ import annotations

import json
from concurrent.futures import Future
from typing import Any

from .call import Call
from .changing import delete_subject, delete_version
from .errors import schema_not_found, subject_not_found, version_not_found
from .members import version_members
from .registering import Given, compare, find, read, register
from .state import Subjects
from .words import LATEST, Mode, Version, guid_of


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
