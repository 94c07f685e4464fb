"""The state of the registry: the same records make the same state for every reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from attrs import evolve

from ..formats.compatibility import Compatibility
from .records import ConfigRecord, ModeRecord, Noop, Record, SchemaRecord, SubjectDeleted
from .words import DEFAULT_LEVEL, Config, Content, Mode, Version

K = TypeVar("K")
T = TypeVar("T")
VersionPlace = tuple[str, int]
"""Subject and version."""


class Subjects:
    """All versions, and the settings of subjects. Only `apply` changes it."""

    def __init__(self) -> None:
        self.versions: dict[str, Mapping[int, Version]] = {}
        self.contents: dict[int, Content] = {}
        self.uses: dict[int, frozenset[VersionPlace]] = {}
        """Id → versions with it."""
        self.configs: dict[str | None, Config] = {}
        self.modes: dict[str | None, Mode] = {}
        self.last_id = 0
        self.applied = 0
        """Number of applied records."""
        self._ids: dict[Content, int] = {}
        self._referrers: dict[VersionPlace, frozenset[VersionPlace]] = {}

    def copy(self) -> Subjects:
        """Return an independent copy. Values in the tables are replaced, never changed."""
        twin = Subjects()
        twin.versions, twin.contents, twin.uses = dict(self.versions), dict(self.contents), dict(self.uses)
        twin.configs, twin.modes = dict(self.configs), dict(self.modes)
        twin.last_id, twin.applied = self.last_id, self.applied
        twin._ids, twin._referrers = dict(self._ids), dict(self._referrers)
        return twin

    def apply(self, record: Record) -> None:
        """Apply the next record of the topic."""
        self.applied += 1
        if isinstance(record, SchemaRecord):
            self._remove((record.subject, record.version))
            if record.value is not None:
                self._add(record.value)
        elif isinstance(record, ConfigRecord):
            _put(self.configs, record.subject, record.value)
        elif isinstance(record, ModeRecord):
            _put(self.modes, record.subject, record.value)
        elif isinstance(record, Noop):
            self.last_id = max(self.last_id, record.last_id)
        elif isinstance(record, SubjectDeleted):
            self._delete_softly(record.subject, record.version)
        else:
            for version in self.versions.get(record.subject, {}).values():
                if version.deleted:
                    self._remove((record.subject, version.version))

    # --- lookup

    def id_of(self, content: Content) -> int | None:
        """Return the id of that content, in any subject."""
        return self._ids.get(content)

    def of_subject(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """Return the versions of a subject, oldest first; `deleted` includes softly deleted ones."""
        found = self.versions.get(subject, {})
        return [found[number] for number in sorted(found) if deleted or not found[number].deleted]

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version | None:
        """Return that version, or None."""
        found = self.versions.get(subject, {}).get(number)
        return found if found is not None and (deleted or not found.deleted) else None

    def referrers(self, subject: str, number: int) -> list[Version]:
        """Return the versions that refer to that version, and are not deleted."""
        places = sorted(self._referrers.get((subject, number), ()))
        return [each for place in places if (each := self.version(*place)) is not None]

    def level(self, subject: str) -> Compatibility:
        """Return the effective level of the subject."""
        for scope in (subject, None):
            config = self.configs.get(scope)
            if config is not None and config.level is not None:
                return config.level
        return DEFAULT_LEVEL

    def normalizes(self, subject: str) -> bool:
        """Return True if schemas of the subject are normalized by default."""
        for scope in (subject, None):
            config = self.configs.get(scope)
            if config is not None and config.normalize is not None:
                return config.normalize
        return False

    def mode(self, subject: str) -> Mode:
        """Return the effective mode of the subject."""
        return self.modes.get(subject) or self.modes.get(None, Mode.READWRITE)

    # --- changes

    def _delete_softly(self, subject: str, upto: int) -> None:
        if subject in self.versions:
            self.versions[subject] = {
                number: evolve(version, deleted=True) if number <= upto else version
                for number, version in self.versions[subject].items()
            }

    def _add(self, version: Version) -> None:
        place = (version.subject, version.version)
        self.versions[version.subject] = {**self.versions.get(version.subject, {}), version.version: version}
        self.contents[version.id] = version.content
        self.uses[version.id] = self.uses.get(version.id, frozenset()) | {place}
        self._ids.setdefault(version.content, version.id)
        self.last_id = max(self.last_id, version.id)
        for each in version.content.references:
            target = (each.subject, each.version)
            self._referrers[target] = self._referrers.get(target, frozenset()) | {place}

    def _remove(self, place: VersionPlace) -> None:
        subject, number = place
        versions = self.versions.get(subject, {})
        version = versions.get(number)
        if version is None:
            return
        _put(self.versions, subject, {each: versions[each] for each in versions if each != number} or None)
        _put(self.uses, version.id, (self.uses[version.id] - {place}) or None)
        if version.id not in self.uses:
            content = self.contents.pop(version.id)
            if self._ids.get(content) == version.id:
                del self._ids[content]
        for target in {(each.subject, each.version) for each in version.content.references}:
            _put(self._referrers, target, (self._referrers[target] - {place}) or None)


def _put(where: dict[K, T], key: K, value: T | None) -> None:
    if value is None:
        where.pop(key, None)
    else:
        where[key] = value
