"""The places in the answer to each request that can carry an error, derived from the types of requests and results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, get_args, get_origin

import attrs

from ..ports import broker_api
from ..ports.broker_api.configs import ConfigResource, ResourceKind
from ..ports.broker_api.envelope import Request
from ..ports.error_codes import ErrorCode
from ..ports.errors import ConfigError
from ..ports.types import TopicPartition
from ..ports.values import frozen

ERROR_TEXT = "an error on demand"

_NAMES = frozenset(
    {"topic", "partition", "name", "group_id", "key", "resource", "member_id", "group_instance_id", "user", "entity"}
)
"""Fields that say what an outcome is about; an error keeps them."""
_OF_TRANSACTIONS = frozenset({"producer_id", "transactional_id", "partitions"})
"""Fields like `_NAMES`, in outcomes about transactions."""
_ONLY_THE_BROKER_KNOWS = frozenset({"Metadata", "DescribeCluster"})
"""APIs whose answers describe the cluster even if their topics have errors."""
_NO_TOPIC_FIELDS = frozenset({"group_ids", "keys", "groups", "members", "transactional_ids", "users"})
OF_PARTITIONS_OF_GROUPS = frozenset(
    {
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Errors about the partitions of a group, never about the group as a whole."""
_OF_A_SESSION = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


@frozen
class Item:
    """One thing that a request asks about."""

    raw: Any
    topic: str | None = None
    partition: int | None = None
    group: str | None = None


@frozen
class Shape:
    """One API. `outcomes`: the field of the result with an outcome, and an error, for each item of the request."""

    request_type: type[Request[Any]]
    result_type: type[Any]
    items_field: str | None
    outcomes_field: str | None
    outcome_type: type[Any] | None
    inner_type: type[Any] | None
    """The type of the partitions within an outcome, where they have errors of their own."""
    has_error: bool
    """The result as a whole can be an error."""
    has_topics: bool
    has_partitions: bool
    has_groups: bool

    @property
    def name(self) -> str:
        return self.request_type.__name__

    @property
    def must_ask(self) -> bool:
        """No answer can be made without the broker."""
        return self.name in _ONLY_THE_BROKER_KNOWS

    def items(self, request: Request[Any], *, inner: bool = False) -> list[Item] | None:
        """Return what the request asks about; None = everything there is. `inner`: the partitions within its items, if
        any.

        The topic or partition of an item is None when it is about all of them.
        """
        if self.items_field is None:
            return [_item(request, None)]
        raw = getattr(request, self.items_field)
        if raw is None:
            return None
        group = getattr(request, "group_id", None)
        if isinstance(raw, Mapping):
            places = (TopicPartition(topic, number) for topic, numbers in raw.items() for number in numbers)
            return [Item(place, place.topic, place.partition, group) for place in places]
        return [item for each in raw for item in self._items(each, group, inner)]

    def _items(self, raw: Any, group: str | None, inner: bool) -> list[Item]:
        if isinstance(raw, str):
            return [Item(raw, group=raw) if self.items_field in _NO_TOPIC_FIELDS else Item(raw, topic=raw)]
        places = getattr(raw, "partitions", None)
        if inner and self.inner_type is not None and isinstance(places, Sequence):
            return [Item(raw, place.topic, place.partition, getattr(raw, "group_id", None)) for place in places]
        return [_item(raw, group)]

    def check(self, *, topic: str | None, partition: int | None, group: str | None) -> None:
        """Raise `ConfigError` unless requests of this API have the given criteria: a topic, a partition, a group."""
        if topic is not None and not self.has_topics:
            raise ConfigError(f"{self.name} is not about topics: leave topic= out")
        if partition is not None and not self.has_partitions:
            raise ConfigError(f"{self.name} is not about partitions: leave partition= out")
        if group is not None and not self.has_groups:
            raise ConfigError(f"{self.name} is not about groups: leave group= out")


def _item(raw: Any, group: str | None) -> Item:
    resource = raw if isinstance(raw, ConfigResource) else getattr(raw, "resource", None)
    if resource is not None:
        return Item(raw, topic=resource.name if resource.kind == ResourceKind.TOPIC else "")
    topic = getattr(raw, "topic", getattr(raw, "name", None))
    return Item(raw, topic, getattr(raw, "partition", None), getattr(raw, "group_id", group))


_shapes: dict[type[Any], Shape] = {}


def shape_of(request_type: type[Request[Any]]) -> Shape:
    """The shape of an API, by the type of its request."""
    found = _shapes.get(request_type)
    if found is None:
        found = _shapes[request_type] = _shape(request_type)
    return found


def _shape(request_type: type[Any]) -> Shape:
    result_type = _result_type(request_type)
    outcomes_field, outcome_type = _outcomes(result_type)
    if outcome_type is not None and not _needed(outcome_type) <= _NAMES | _OF_TRANSACTIONS:
        outcomes_field = outcome_type = None  # of something else than was asked for: data folders
    fields = {field.name: field for field in attrs.fields(request_type)}
    items_field = next((name for name, field in fields.items() if _is_collection(field.type)), None)
    if outcomes_field is None and not any(name in fields for name in ("topics", "partitions")):
        items_field = None  # lists of other things, such as the protocols of a member
    item_type = _element(fields[items_field].type) if items_field else request_type
    is_mapping = items_field is not None and Mapping in _origins(fields[items_field].type)
    if outcomes_field is not None and isinstance(getattr(request_type, outcomes_field, None), property):
        items_field, item_type = outcomes_field, str  # several lists of the request name the same things, by name
    item_fields = _field_names(item_type) if item_type is not None else set()
    inner_type = _outcomes(outcome_type)[1] if outcome_type is not None else None
    inner_places = inner_type is not None and "partitions" in item_fields
    plain_topics = item_type is str and items_field not in _NO_TOPIC_FIELDS
    return Shape(
        request_type=request_type,
        result_type=result_type,
        items_field=items_field,
        outcomes_field=outcomes_field,
        outcome_type=outcome_type,
        inner_type=inner_type,
        has_error="error" in _field_names(result_type),
        has_topics=is_mapping or inner_places or plain_topics or bool(item_fields & {"topic", "name", "resource"}),
        has_partitions=is_mapping or inner_places or "partition" in item_fields or inner_type is not None,
        has_groups="group_id" in fields or "group_id" in item_fields or items_field in ("group_ids", "keys"),
    )


def _result_type(request_type: type[Request[Any]]) -> type[Any]:
    base = next(base for base in request_type.__orig_bases__ if get_origin(base) is Request)  # type: ignore[attr-defined]  # of a generic's subclass
    (named,) = get_args(base)
    name = getattr(named, "__forward_arg__", named)
    found: type[Any] = getattr(sys.modules[request_type.__module__], name) if isinstance(name, str) else named
    return found


def _outcomes(holder: type[Any]) -> tuple[str | None, type[Any] | None]:
    """The field with a sequence of things that have an error each, or have such a field, and the type of those."""
    for field in attrs.fields(holder):
        element = _element(field.type)
        if element is None or not attrs.has(element):
            continue
        if "error" in _field_names(element) or _outcomes(element)[1] is not None:
            return field.name, element
    return None, None


def _needed(kind: type[Any]) -> set[str]:
    return {field.name for field in attrs.fields(kind) if field.default is attrs.NOTHING}


def _origins(annotation: Any) -> set[Any]:
    """Return the origin of a type and of each part of a union."""
    return {get_origin(annotation), *(get_origin(part) for part in get_args(annotation))}


def _is_collection(annotation: Any) -> bool:
    return bool(_origins(annotation) & {Sequence, Mapping})


def _element(annotation: Any) -> type[Any] | None:
    """Return the element type of a sequence; None if it has none."""
    for kind in (annotation, *get_args(annotation)):
        if get_origin(kind) is Sequence:
            (found,) = get_args(kind)
            return found if isinstance(found, type) else None
    return None


def _field_names(kind: type[Any]) -> set[str]:
    if attrs.has(kind):
        return {field.name for field in attrs.fields(kind)}
    return set(getattr(kind, "_fields", ()))


# --- names


def known_requests() -> dict[str, type[Request[Any]]]:
    """Return each request type of the modules of `ports.broker_api`, by name."""
    families = [import_module(f"{broker_api.__name__}.{each.name}") for each in iter_modules(broker_api.__path__)]
    types = (each for family in families for each in vars(family).values() if isinstance(each, type))
    return {each.__name__: each for each in types if issubclass(each, Request) and each is not Request}


def request_type(api: str | int | type[Request[Any]]) -> type[Request[Any]]:
    """The request of an API: by Kafka's name, Kafka's key, or the type itself. Raises `ConfigError` listing them."""
    known = known_requests()
    if isinstance(api, type) and api in known.values():
        return api
    if isinstance(api, int):
        from ..app.compose.broker import kafka_apis

        by_key = kafka_apis()
        if api in by_key:
            return by_key[api]
        numbers = ", ".join(f"{key} {kind.__name__}" for key, kind in sorted(by_key.items()))
        raise ConfigError(f"no API has the key {api}; known: {numbers}")
    spelt = {name.lower(): kind for name, kind in known.items()}
    found = spelt.get(str(api).lower().replace("_", "").removesuffix("request"))
    if found is None:
        raise ConfigError(f"unknown API {api!r}; known: {', '.join(sorted(known))}")
    return found


def error_code(code: str | int | ErrorCode) -> ErrorCode:
    """An error code by name or number. Raises `ConfigError` naming the nearest known one."""
    try:
        found = ErrorCode[code.upper()] if isinstance(code, str) else ErrorCode(code)
    except (KeyError, ValueError):
        from difflib import get_close_matches

        near = get_close_matches(str(code).upper(), ErrorCode.__members__, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ConfigError(f"there is no error code {code!r}{hint}") from None
    if found is ErrorCode.NONE:
        raise ConfigError("NONE is no error")
    return found


# --- answers with errors


Match = Callable[[Item], bool]


def outcome_error(kind: type[Any], about: Any, code: ErrorCode) -> Any:
    """An outcome of this type that says the error about `about`: an item of the request, or a real outcome."""
    values: dict[str, Any] = {}
    for index, field in enumerate(attrs.fields(kind)):
        is_needed = field.default is attrs.NOTHING
        if field.name == "error":
            values["error"] = code
        elif field.name == "error_message":
            values["error_message"] = ERROR_TEXT
        elif field.name in _NAMES or is_needed:
            if isinstance(about, ConfigResource) and field.name == "resource":
                values["resource"] = about
            elif isinstance(about, str) and index == 0:
                values[field.name] = about
            elif hasattr(about, field.name) and not isinstance(about, str):
                values[field.name] = getattr(about, field.name)
            elif field.name == "name" and hasattr(about, "topic"):
                values["name"] = about.topic
            elif is_needed:
                values[field.name] = ()
    if code is ErrorCode.LEADER_NOT_AVAILABLE and "leader" in values:
        values["leader"] = -1
    return kind(**values)


def result_error(shape: Shape, request: Request[Any], code: ErrorCode) -> Any:
    """A result that says the error as a whole; and with each outcome, for versions that have no other place."""
    found = outcome_error(shape.result_type, request, code)
    lists: dict[str, Any] = {field.name: () for field in attrs.fields(shape.result_type) if _is_collection(field.type)}
    if shape.outcomes_field is not None and code not in _OF_A_SESSION:
        lists[shape.outcomes_field] = [_failed(shape, item, code) for item in shape.items(request) or ()]
    return attrs.evolve(found, **lists)


def _failed(shape: Shape, item: Item, code: ErrorCode) -> Any:
    """The outcome of one item of a request; old versions want the error with each partition in it."""
    assert shape.outcome_type is not None
    outcome = outcome_error(shape.outcome_type, item.raw, code)
    if shape.inner_type is None:
        return outcome
    places = getattr(item.raw, "partitions", None) or ()
    return attrs.evolve(outcome, partitions=[outcome_error(shape.inner_type, place, code) for place in places])


def with_errors(shape: Shape, result: Any, match: Match, code: ErrorCode, *, inner: bool) -> Any:
    """The broker's result, with errors in place of what matches; `inner`: of the partitions within the outcomes."""
    if shape.outcomes_field is None:
        return attrs.evolve(result, error=code)
    outcomes = [_spoilt(shape, outcome, match, code, inner) for outcome in getattr(result, shape.outcomes_field)]
    return attrs.evolve(result, **{shape.outcomes_field: outcomes})


def _spoilt(shape: Shape, outcome: Any, match: Match, code: ErrorCode, inner: bool) -> Any:
    about = _item(outcome, None)
    if not inner or shape.inner_type is None:
        return outcome_error(type(outcome), outcome, code) if match(about) else outcome
    partitions = [
        outcome_error(shape.inner_type, place, code)
        if match(Item(place, getattr(place, "topic", about.topic), place.partition, about.group))
        else place
        for place in outcome.partitions
    ]
    return attrs.evolve(outcome, partitions=partitions)


def without(shape: Shape, request: Any, gone: Sequence[Item]) -> Request[Any] | None:
    """The request about everything else; None when nothing is left to ask."""
    assert shape.items_field is not None
    raw = getattr(request, shape.items_field)
    changes: dict[str, Any] = {}
    if isinstance(raw, Mapping):
        places = {item.raw for item in gone}
        remaining: Any = {
            topic: left
            for topic, numbers in raw.items()
            if (left := [number for number in numbers if TopicPartition(topic, number) not in places])
        }
    else:
        remaining = [each for each in raw if not any(item.raw is each for item in gone)]
    changes[shape.items_field] = remaining
    if hasattr(request, "alterations"):
        resources = [item.raw for item in gone]
        changes["alterations"] = [each for each in request.alterations if each.resource not in resources]
    if hasattr(request, "max_wait_ms"):
        changes["max_wait_ms"] = 0  # the error is an answer: there is nothing to wait for
    if not remaining and not getattr(request, "topic_ids", ()):
        return None
    rest: Request[Any] = attrs.evolve(request, **changes)
    return rest


def merged(shape: Shape, items: Sequence[Item], gone: Sequence[Item], result: Any, code: ErrorCode) -> Any:
    """The outcomes of all items in their order: errors for `gone`, the broker's (None: no others) for the rest."""
    assert shape.outcomes_field is not None
    real = iter(() if result is None else getattr(result, shape.outcomes_field))
    outcomes: list[Any] = []
    for item in items:
        if any(item.raw is each.raw for each in gone):
            outcomes.append(_failed(shape, item, code))
        else:
            outcomes += [outcome for outcome in [next(real, None)] if outcome is not None]
    outcomes += real
    if result is None:
        return shape.result_type(**{shape.outcomes_field: outcomes})
    return attrs.evolve(result, **{shape.outcomes_field: outcomes})


def says_as_a_whole(shape: Shape, code: ErrorCode, *, narrowed: bool) -> bool:
    """Whether this error belongs to the whole result rather than to each outcome. Raises `ConfigError` if nowhere.

    `narrowed`: it is meant for certain topics or partitions.
    """
    if not shape.has_error and shape.outcomes_field is None:
        raise ConfigError(f"the answer to {shape.name} has no place for an error; use drop() or delay()")
    if shape.outcomes_field is None:
        return True
    if not shape.has_error or narrowed:
        return False
    return shape.name != "Fetch" or code in _OF_A_SESSION
