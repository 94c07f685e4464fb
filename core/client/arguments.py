"""Checks of the arguments of client calls, so that errors arise in the call and not on the client's own thread."""

from collections.abc import Collection, Mapping
from enum import Enum
from operator import index
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs

from ...ports.broker_api.envelope import Request
from ...ports.types import TopicPartition

TOPIC_BYTES_MAX = 32_767
"""The protocol counts the bytes of a text with 15 bits. Brokers decide which names they allow."""
PARTITION_MAX = 2**31 - 1


def check_topic(topic: object) -> None:
    """Raise `TypeError` or `ValueError` unless a request can carry this name of a topic."""
    if not isinstance(topic, str):
        raise TypeError(f"topic: expected str, got {type(topic).__name__} ({topic!r:.80})")
    if not topic:
        raise ValueError("topic: the name is empty")
    try:
        size = len(topic.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"topic {topic!r:.80}: {error}") from error
    if size > TOPIC_BYTES_MAX:
        raise ValueError(f"topic {topic[:40]!r}...: {size} bytes are more than a name can have")


def whole_number(given: object, what: str) -> int:
    """Return the number. Raises `TypeError` unless it is an integer."""
    try:
        return index(given)  # type: ignore[arg-type]  # that is the question
    except TypeError:
        raise TypeError(f"{what}: expected int, got {type(given).__name__} ({given!r:.80})") from None


def check_offset(offset: object, what: str = "offset") -> None:
    """Raise `TypeError` unless this is an integer, `ValueError` for one that the protocol cannot carry."""
    number = whole_number(offset, what)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{what} {number}: it has at most 64 bits")


def checked_partition_number(partition: object) -> int:
    """Return the number of a partition. Raises `TypeError`, `ValueError`."""
    number = whole_number(partition, "partition")
    if not 0 <= number <= PARTITION_MAX:
        raise ValueError(f"partition {number}: expected 0 or more")
    return number


def as_topic_partition(given: object) -> TopicPartition:
    """Return the pair of topic and partition. Raises `TypeError`, `ValueError`."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise TypeError(f"expected a pair (topic, partition), got {given!r:.80}")
    check_topic(given[0])
    return TopicPartition(given[0], checked_partition_number(given[1]))


_HINTS: dict[type[Any], Mapping[str, Any]] = {}
"""Class of a request, or of a part of one → the types of its fields."""


def check_request(request: Request[Any]) -> None:
    """Raise `TypeError` for a field whose value does not have the declared type, `ValueError` for a text without UTF-8
    encoding and a number beyond 64 bits."""
    _check_fields(request, type(request).__name__)


def _hints(kind: type[Any]) -> Mapping[str, Any]:
    if kind not in _HINTS:
        hints = get_type_hints(kind)
        _HINTS[kind] = {field.name: hints[field.name] for field in attrs.fields(kind)}
    return _HINTS[kind]


def _check_fields(value: Any, what: str) -> None:
    for name, hint in _hints(type(value)).items():
        _check(getattr(value, name), hint, f"{what}.{name}")


def _check(value: Any, hint: Any, what: str) -> None:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        _check_union(value, get_args(hint), what)
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise _wrong(value, "a mapping", what)
        of_key, of_value = get_args(hint)
        for key, content in value.items():
            _check(key, of_key, f"key of {what}")
            _check(content, of_value, f"{what}[{key!r}]")
    elif isinstance(origin, type) and issubclass(origin, Collection):
        if not isinstance(value, Collection) or isinstance(value, str | bytes | Mapping):
            raise _wrong(value, "a list", what)
        if origin is not tuple:
            for number, each in enumerate(value):
                _check(each, get_args(hint)[0], f"{what}[{number}]")
    elif isinstance(hint, type):
        _check_plain(value, hint, what)


def _check_union(value: Any, hints: tuple[Any, ...], what: str) -> None:
    if value is None and type(None) in hints:
        return
    others = [hint for hint in hints if hint is not type(None)]
    if len(others) == 1:
        _check(value, others[0], what)
    elif not any(isinstance(value, hint) for hint in others if isinstance(hint, type)):
        raise _wrong(value, " or ".join(getattr(hint, "__name__", str(hint)) for hint in others), what)


def _check_plain(value: Any, kind: type, what: str) -> None:
    if kind is int:
        try:
            number = index(value)
        except TypeError:
            raise _wrong(value, "int", what) from None
        if not -(2**63) <= number < 2**63:
            raise ValueError(f"{what}: {number} has more than 64 bits")
    elif kind is float:
        if not isinstance(value, int | float):
            raise _wrong(value, "float", what)
    elif issubclass(kind, Enum) and issubclass(kind, int):
        _check_plain(value, int, what)
    elif not isinstance(value, kind):
        raise _wrong(value, kind.__name__, what)
    elif isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{what}: {error}") from error
    elif attrs.has(kind):
        _check_fields(value, what)


def _wrong(value: Any, expected: str, what: str) -> TypeError:
    return TypeError(f"{what}: expected {expected}, got {type(value).__name__} ({value!r:.80})")
