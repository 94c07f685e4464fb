"""The records of the topic `_schemas`, in the form of Confluent's registry, so that each reads the other's records.

Keys and values are JSON. A key has a kind; a null value revokes it. Avro as the type, and settings that are not set,
are left out, as there: old registries do not know them.
"""

from __future__ import annotations

import json
from typing import Any

from ...ports.errors import BarnabasError
from ...ports.values import frozen
from ..formats.compatibility import Compatibility
from ..formats.parsed import AVRO
from .members import config_members, version_members
from .words import ID_MAX, VERSION_MAX, Config, Content, Mode, Reference, Version

_KEY_VERSIONS = {"SCHEMA": 1}
_MODES = {"READONLY_OVERRIDE": "READONLY", "FORWARD": "READONLY"}
"""Further modes of Confluent's registry; none of them allows writes."""


class UnknownRecord(BarnabasError):
    """A record that this registry does not understand."""


@frozen
class SchemaRecord:
    """A version; None if it is permanently deleted."""

    subject: str
    version: int
    value: Version | None


@frozen
class SubjectDeleted:
    """A soft deletion of all versions up to this one."""

    subject: str
    version: int


@frozen
class SubjectCleared:
    """A permanent deletion of all softly deleted versions."""

    subject: str


@frozen
class ConfigRecord:
    """The configuration of a subject, or (None) of all."""

    subject: str | None
    value: Config | None


@frozen
class ModeRecord:
    """The mode of a subject, or (None) of all."""

    subject: str | None
    value: Mode | None


@frozen
class Noop:
    """No change; ours may contain assigned ids, so that one that was permanently deleted is not assigned again."""

    last_id: int = 0


Record = SchemaRecord | SubjectDeleted | SubjectCleared | ConfigRecord | ModeRecord | Noop


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """Return key and value of a record."""
    if isinstance(record, SchemaRecord):
        value = None if record.value is None else _schema_value(record.value)
        return _key("SCHEMA", {"subject": record.subject, "version": record.version}), _json(value)
    if isinstance(record, SubjectDeleted):
        said = {"subject": record.subject, "version": record.version}
        return _key("DELETE_SUBJECT", {"subject": record.subject}), _json(said)
    if isinstance(record, SubjectCleared):
        return _key("CLEAR_SUBJECT", {"subject": record.subject}), _json({"subject": record.subject})
    if isinstance(record, ConfigRecord):
        config = None if record.value is None else _config_value(record.subject, record.value)
        return _key("CONFIG", {"subject": record.subject}), _json(config)
    if isinstance(record, ModeRecord):
        mode = None if record.value is None else _of_subject(record.subject) | {"mode": record.value.value}
        return _key("MODE", {"subject": record.subject}), _json(mode)
    return _key("NOOP", {}), _json({"lastId": record.last_id} if record.last_id else None)


def decode(key: bytes | None, value: bytes | None) -> Record:
    """Parse a record. Raises `UnknownRecord`."""
    try:
        return _decode(json.loads(key or b"null"), json.loads(value) if value else None)  # Karapace deletes with b""
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnknownRecord(f"key {key!r:.200}: {type(error).__name__}: {error}") from error


def _decode(key: Any, value: Any) -> Record:
    kind = key["keytype"]
    if str(key.get("subject")).startswith(":."):
        raise ValueError("contexts other than the default one are not supported")
    if kind == "SCHEMA":
        subject, version = _text(key["subject"]), _number(key["version"], VERSION_MAX)
        return SchemaRecord(subject, version, None if value is None else _version(subject, version, value))
    if kind == "DELETE_SUBJECT":
        return (
            Noop() if value is None else SubjectDeleted(_text(key["subject"]), _number(value["version"], VERSION_MAX))
        )
    if kind == "CLEAR_SUBJECT":
        return Noop() if value is None else SubjectCleared(_text(key["subject"]))
    if kind == "CONFIG":
        return ConfigRecord(_maybe_text(key.get("subject")), None if value is None else _config(value))
    if kind == "MODE":
        mode = None if value is None else Mode(_MODES.get(value["mode"], value["mode"]))
        return ModeRecord(_maybe_text(key.get("subject")), mode)
    if kind == "CONTEXT":
        return Noop()
    if kind == "NOOP":
        return Noop(_number(value.get("lastId", 0), ID_MAX) if isinstance(value, dict) else 0)
    raise ValueError(f"keytype {kind!r:.50}")


def _key(kind: str, members: dict[str, Any]) -> bytes:
    return _json({"keytype": kind, **members, "magic": _KEY_VERSIONS.get(kind, 0)}) or b""


def _json(value: Any) -> bytes | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _schema_value(version: Version) -> dict[str, Any]:
    return {**version_members(version), "deleted": version.deleted}


def _version(subject: str, number: int, value: Any) -> Version:
    content = Content(
        _text(value.get("schemaType") or AVRO),
        _text(value["schema"]),
        tuple(
            Reference(_text(each["name"]), _text(each["subject"]), _number(each["version"], VERSION_MAX))
            for each in value.get("references") or ()
        ),
        metadata=packed(value.get("metadata")),
        rule_set=packed(value.get("ruleSet")),
    )
    own_id = _number(value["id"], ID_MAX)
    return Version(subject=subject, version=number, id=own_id, content=content, deleted=value.get("deleted") is True)


def packed(value: Any) -> str:
    """Return stored JSON in a fixed form; empty for null."""
    return "" if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _config_value(subject: str | None, config: Config) -> dict[str, Any]:
    return _of_subject(subject) | config_members(config, "compatibilityLevel")


def _of_subject(subject: str | None) -> dict[str, Any]:
    return {} if subject is None else {"subject": subject}


def _config(value: Any) -> Config:
    level, normalize = value.get("compatibilityLevel"), value.get("normalize")
    return Config(
        level=None if level is None else Compatibility(level),
        normalize=normalize if normalize is None else normalize is True,
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.100} is not a text")
    return value


def _maybe_text(value: Any) -> str | None:
    return None if value is None else _text(value)


def _number(value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{value!r:.100} is not a whole number from 0 to {most}")
    return value
