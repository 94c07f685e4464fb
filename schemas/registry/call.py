"""A request of the REST API, and its parameters."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...ports.values import frozen
from ..formats.compatibility import Compatibility
from ..formats.parsed import AVRO, PROTOBUF, InvalidSchema, UnsupportedFormat
from .errors import RegistryError, invalid_schema, invalid_version, not_permitted
from .records import packed
from .registering import Given
from .registry import Registry
from .state import Subjects
from .words import ID_MAX, LATEST, VERSION_MAX, Config, Content, Mode, Reference

_DEFAULT_CONTEXT = ":.:"
_SUBJECT_CHARS_MAX = 1000
_REFERENCES_MAX = 1000


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
