"""Deletions, and changes of levels and modes: the records to write, or an error."""

from __future__ import annotations

from attrs import evolve

from .errors import RegistryError, not_permitted, subject_not_found, version_not_found
from .records import ConfigRecord, ModeRecord, Noop, Record, SchemaRecord, SubjectDeleted
from .state import Subjects
from .words import LATEST, Config, Mode, Version


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
