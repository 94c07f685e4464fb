"""Routes for schemas by id, levels and modes."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from ..formats.parsed import FORMATS
from .call import Call
from .changing import delete_config, delete_mode, set_config, set_mode
from .errors import RegistryError, schema_not_found
from .members import config_members, content_members, version_members
from .state import Subjects
from .words import DEFAULT_LEVEL, Config, Content, Mode, Version, guid_of


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
