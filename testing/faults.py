"""Faults on demand: what goes wrong, for which requests, how often."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, get_args, get_origin

import attrs

from ..ports import broker_api
from ..ports.broker_api.configs import ConfigResource, ResourceKind
from ..ports.broker_api.envelope import Caller, Reply, Request
from ..ports.error_codes import ErrorCode
from ..ports.errors import ConfigError
from ..ports.transport import TransportError
from ..ports.types import TopicPartition
from ..ports.values import frozen

if TYPE_CHECKING:
    from types import TracebackType


Api = str | int | type[Request[Any]]
"""An API: Kafka's name or key of it, or the type of its request."""
When = Callable[[Request[Any], Caller], bool]
Submit = Callable[[Request[Any], Caller, Reply[Any]], None]
Later = Callable[[float, Callable[[], None]], None]
"""Runs a callback after a delay in milliseconds, on the broker's thread."""

_PATIENCE_S = 60.0


# The places in the answer to each request that can carry an error, derived from the types of requests and results.

ERROR_TEXT = "an error on demand"

_NAMES = frozenset(
    {"topic", "partition", "name", "group_id", "key", "resource", "member_id", "group_instance_id", "user", "entity"}
)
"""Fields that say what an outcome is about; an error keeps them."""
_OF_TRANSACTIONS = frozenset({"producer_id", "transactional_id", "partitions"})
"""Fields like `_NAMES`, in outcomes about transactions."""
_OF_SHARE_PARTITIONS = frozenset({"topic_id"})
"""A field like `_NAMES`, in outcomes about share partitions."""
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
            return [Item(tp, tp.topic, tp.partition, group) for tp in places]
        return [item for each in raw for item in self._items(each, group, inner)]

    def _items(self, raw: Any, group: str | None, inner: bool) -> list[Item]:
        if isinstance(raw, str):
            return [Item(raw, group=raw) if self.items_field in _NO_TOPIC_FIELDS else Item(raw, topic=raw)]
        topic_partitions = getattr(raw, "partitions", None)
        if inner and self.inner_type is not None and isinstance(topic_partitions, Sequence):
            return [Item(raw, tp.topic, tp.partition, getattr(raw, "group_id", None)) for tp in topic_partitions]
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
    """Return the shape of an API, by the type of its request."""
    found = _shapes.get(request_type)
    if found is None:
        found = _shapes[request_type] = _shape(request_type)
    return found


def _shape(request_type: type[Any]) -> Shape:
    result_type = _result_type(request_type)
    outcomes_field, outcome_type = _outcomes(result_type)
    if outcome_type is not None and not _needed(outcome_type) <= _NAMES | _OF_TRANSACTIONS | _OF_SHARE_PARTITIONS:
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
    inner_field, inner_type = _outcomes(outcome_type) if outcome_type is not None else (None, None)
    if inner_field != "partitions":
        inner_type = None  # topics within groups; the error is one of the group
    inner_places = inner_type is not None and "partitions" in item_fields
    plain_topics = item_type is str and items_field not in _NO_TOPIC_FIELDS
    has_topics = is_mapping or inner_places or plain_topics or bool(item_fields & {"topic", "name", "resource"})
    has_partitions = is_mapping or inner_places or "partition" in item_fields or inner_type is not None
    return Shape(
        request_type=request_type,
        result_type=result_type,
        items_field=items_field,
        outcomes_field=outcomes_field,
        outcome_type=outcome_type,
        inner_type=inner_type,
        has_error="error" in _field_names(result_type),
        has_topics=has_topics,
        has_partitions=has_partitions
        and (has_topics or "topic_id" not in item_fields),  # no partition without its topic
        has_groups="group_id" in fields or "group_id" in item_fields or items_field in ("group_ids", "keys"),
    )


def _result_type(request_type: type[Request[Any]]) -> type[Any]:
    base = next(base for base in request_type.__orig_bases__ if get_origin(base) is Request)  # type: ignore[attr-defined]  # of a generic's subclass
    (named,) = get_args(base)
    name = getattr(named, "__forward_arg__", named)
    found: type[Any] = getattr(sys.modules[request_type.__module__], name) if isinstance(name, str) else named
    return found


def _outcomes(holder: type[Any]) -> tuple[str | None, type[Any] | None]:
    """Return the field with a sequence of things that have an error each, or have such a field, and the type of
    those."""
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
    """Return the request of an API: by Kafka's name, Kafka's key, or the type itself. Raises `ConfigError` listing
    them."""
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
        from difflib import get_close_matches

        near = [spelt[name].__name__ for name in get_close_matches(str(api).lower(), spelt, n=2)]
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(sorted(known))}"
        raise ConfigError(f"unknown API {api!r}; {hint}")
    return found


def error_code(code: str | int | ErrorCode) -> ErrorCode:
    """Return an error code by name or number. Raises `ConfigError` naming the nearest known one."""
    try:
        found = ErrorCode[code.upper()] if isinstance(code, str) else ErrorCode(code)
    except (KeyError, ValueError):
        from difflib import get_close_matches

        near = get_close_matches(str(code).upper(), ErrorCode.__members__, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ConfigError(f"there is no error code {code!r}{hint}") from None
    if found is ErrorCode.NONE:
        raise ConfigError("NONE is not an error")
    return found


# --- answers with errors


Match = Callable[[Item], bool]


def outcome_error(kind: type[Any], about: Any, code: ErrorCode) -> Any:
    """Return an outcome of this type that says the error about `about`: an item of the request, or a real outcome."""
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
    """Return a result that says the error as a whole; and with each outcome, for versions that have no other place."""
    found = outcome_error(shape.result_type, request, code)
    lists: dict[str, Any] = {field.name: () for field in attrs.fields(shape.result_type) if _is_collection(field.type)}
    if shape.outcomes_field is not None and code not in _OF_A_SESSION:
        lists[shape.outcomes_field] = [_failed(shape, item, code) for item in shape.items(request) or ()]
    return attrs.evolve(found, **lists)


def _failed(shape: Shape, item: Item, code: ErrorCode) -> Any:
    """Return the outcome of one item of a request; old versions want the error with each partition in it."""
    assert shape.outcome_type is not None
    outcome = outcome_error(shape.outcome_type, item.raw, code)
    if shape.inner_type is None:
        return outcome
    topic_partitions = getattr(item.raw, "partitions", None) or ()
    return attrs.evolve(outcome, partitions=[outcome_error(shape.inner_type, tp, code) for tp in topic_partitions])


def with_errors(shape: Shape, result: Any, match: Match, code: ErrorCode, *, inner: bool) -> Any:
    """Return the broker's result, with errors in place of what matches; `inner`: of the partitions within the
    outcomes."""
    if shape.outcomes_field is None:
        return attrs.evolve(result, error=code)
    outcomes = [_spoilt(shape, outcome, match, code, inner) for outcome in getattr(result, shape.outcomes_field)]
    return attrs.evolve(result, **{shape.outcomes_field: outcomes})


def _spoilt(shape: Shape, outcome: Any, match: Match, code: ErrorCode, inner: bool) -> Any:
    about = _item(outcome, None)
    if not inner or shape.inner_type is None:
        return outcome_error(type(outcome), outcome, code) if match(about) else outcome
    partitions = [
        outcome_error(shape.inner_type, tp, code)
        if match(Item(tp, getattr(tp, "topic", about.topic), tp.partition, about.group))
        else tp
        for tp in outcome.partitions
    ]
    return attrs.evolve(outcome, partitions=partitions)


def without(shape: Shape, request: Any, gone: Sequence[Item]) -> Request[Any] | None:
    """Return the request about everything else; None when nothing is left to ask."""
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
    """Return the outcomes of all items in their order: errors for `gone`, the broker's (None: no others) for the
    rest."""
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
    """Return whether this error belongs to the whole result rather than to each outcome. Raises `ConfigError` if
    nowhere.

    `narrowed`: it is meant for certain topics or partitions.
    """
    if not shape.has_error and shape.outcomes_field is None:
        raise ConfigError(f"the answer to {shape.name} has no place for an error; use drop() or delay()")
    if shape.outcomes_field is None:
        return True
    if not shape.has_error or narrowed:
        return False
    return shape.name != "Fetch" or code in _OF_A_SESSION


class Fault:
    """One thing that goes wrong on demand. In force until it is removed, or has happened `times` times.

    with broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        ...
    assert fault.hits == 2
    """

    def __init__(
        self,
        faults: Faults,
        api: Api | None,
        *,
        topic: str | None,
        partition: int | None,
        group: str | None,
        client_id: str | None,
        when: When | None,
        times: int | None,
    ) -> None:
        for name, given in (("topic", topic), ("group", group), ("client_id", client_id)):
            if given is not None and not isinstance(given, str):
                raise ConfigError(f"{name}={given!r}: give a text")
        for name, number, least in (("times", times, 1), ("partition", partition, 0)):
            if number is not None and (type(number) is not int or number < least):
                raise ConfigError(f"{name}={number!r}: give {least} or more, or leave it out")
        if when is not None and not callable(when):
            raise ConfigError(f"when={when!r}: give a function of the request")
        self._faults = faults
        self._request_type = None if api is None else request_type(api)
        self._topic = topic
        self._partition = partition
        self._group = group
        self._client_id = client_id
        self._when = when
        self._times = times
        if self._request_type is not None:
            shape_of(self._request_type).check(topic=topic, partition=partition, group=group)
        self._changed = threading.Condition()
        self._hits = 0
        self._removed = False

    @property
    def hits(self) -> int:
        """The number of times that it has happened."""
        return self._hits

    @property
    def active(self) -> bool:
        """False once it was removed, or has happened as often as it should."""
        return not self._removed and (self._times is None or self._hits < self._times)

    def wait(self, hits: int = 1, *, timeout: float = _PATIENCE_S) -> None:
        """Return when it has happened `hits` times. Raises `TimeoutError` after `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._hits >= hits, timeout):
                raise TimeoutError(f"{self} has happened {self._hits} times in {timeout:g} s, not {hits}")

    def remove(self) -> None:
        """Stop the fault. A second call has no effect."""
        with self._changed:
            self._removed = True
        self._faults.forget(self)

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        named = {"topic": self._topic, "partition": self._partition, "group": self._group, "client_id": self._client_id}
        parts = [self.api] + [f"{name}={value!r}" for name, value in named.items() if value is not None]
        return f"<{self.what} {' '.join(parts)}, {self._hits} hits>"

    what = "fault"

    @property
    def api(self) -> str:
        """The API it is about."""
        return "every API" if self._request_type is None else self._request_type.__name__

    # --- for the broker's thread

    def takes(self, request: Request[Any], caller: Caller) -> bool:
        """Return whether it happens to this request; it counts as having happened then."""
        if self._request_type is not None and type(request) is not self._request_type:
            return False
        if self._client_id is not None and caller.client_id != self._client_id:
            return False
        if not self._concerns(request) or (self._when is not None and not self._when(request, caller)):
            return False
        return self.count()

    def count(self) -> bool:
        """Count one hit; return False if the fault has ended."""
        with self._changed:
            if not self.active:
                return False
            self._hits += 1
            self._changed.notify_all()
            is_over = not self.active
        if is_over:
            self._end()
        return True

    def _end(self) -> None:
        """End the fault: it has happened as often as it should."""
        self._faults.forget(self)

    @property
    def narrowed(self) -> bool:
        """Whether it is meant for a topic or partition."""
        return self._topic is not None or self._partition is not None

    def matches(self, item: Item) -> bool:
        """Return whether it is meant for this item; what an item says nothing of counts as meant."""
        return (
            (self._topic is None or item.topic is None or item.topic == self._topic)
            and (self._partition is None or item.partition is None or item.partition == self._partition)
            and (self._group is None or item.group is None or item.group == self._group)
        )

    def _concerns(self, request: Request[Any]) -> bool:
        if not self.narrowed and self._group is None:
            return True
        shape = shape_of(type(request))
        if self._request_type is None and not (
            (self._topic is None or shape.has_topics)
            and (self._partition is None or shape.has_partitions)
            and (self._group is None or shape.has_groups)
        ):
            return False
        items = shape.items(request, inner=True)
        return items is None or any(self.matches(item) for item in items)

    def apply(self, request: Request[Any], caller: Caller, reply: Reply[Any], submit: Submit, later: Later) -> None:
        """Do it to a request that it `takes`: `submit` hands it on to the broker, `reply` answers it, `later` waits."""
        raise NotImplementedError


class ErrorFault(Fault):
    """Answers with an error code."""

    what = "error"

    def __init__(self, faults: Faults, api: Api, code: str | int | ErrorCode, **which: Any) -> None:
        super().__init__(faults, api, **which)
        self.code = error_code(code)
        self._shape = shape_of(request_type(api))
        self._whole = says_as_a_whole(self._shape, self.code, narrowed=self.narrowed)
        self._inner = self._shape.inner_type is not None and (
            which["partition"] is not None
            or (self._shape.has_groups and (self.narrowed or self.code in OF_PARTITIONS_OF_GROUPS))
        )

    def _concerns(self, request: Request[Any]) -> bool:
        return (self._whole or self._shape.items(request) != []) and super()._concerns(request)

    def apply(self, request: Request[Any], caller: Caller, reply: Reply[Any], submit: Submit, later: Later) -> None:  # noqa: ARG002
        shape, code = self._shape, self.code
        if self._whole and not shape.must_ask:
            reply(result_error(shape, request, code))
            return
        items = shape.items(request)
        if shape.must_ask or self._inner or items is None:
            spoil = partial(with_errors, shape, match=self.matches, code=code, inner=self._inner)
            submit(request, caller, _then(reply, spoil))
            return
        gone = [item for item in items if self.matches(item)]
        rest = without(shape, request, gone)
        if rest is None:
            reply(merged(shape, items, gone, None, code))
        else:
            submit(rest, caller, _then(reply, lambda result: merged(shape, items, gone, result, code)))


class DelayFault(Fault):
    """Delays answers by a number of milliseconds, or until it is removed."""

    what = "delay"

    def __init__(self, faults: Faults, api: Api | None, delay_ms: float | None, **which: Any) -> None:
        super().__init__(faults, api, **which)
        if delay_ms is not None and (type(delay_ms) not in (int, float) or delay_ms < 0):
            raise ConfigError(f"a delay of {delay_ms!r} ms")
        self._delay_ms = delay_ms
        self._held: list[Callable[[], None]] = []

    def apply(self, request: Request[Any], caller: Caller, reply: Reply[Any], submit: Submit, later: Later) -> None:
        def wait(result: Any) -> None:
            if self._delay_ms is not None:
                later(self._delay_ms, lambda: reply(result))
                return
            with self._changed:
                is_over = self._removed
                if not is_over:
                    self._held.append(lambda: later(0.0, lambda: reply(result)))
            if is_over:
                reply(result)

        submit(request, caller, wait)

    def _end(self) -> None:
        if self._delay_ms is not None:  # else it is still to be removed
            super()._end()

    def remove(self) -> None:
        super().remove()
        with self._changed:
            held, self._held = self._held, []
        self._faults.on_broker_thread(partial(_call_all, held))


class DropFault(Fault):
    """Closes the connection in place of an answer."""

    what = "drop"

    def __init__(self, faults: Faults, api: Api | None, *, after: bool, **which: Any) -> None:
        super().__init__(faults, api, **which)
        self._after = after

    def apply(self, request: Request[Any], caller: Caller, reply: Reply[Any], submit: Submit, later: Later) -> None:  # noqa: ARG002
        dropped = TransportError("the connection is dropped on demand")
        if self._after:
            submit(request, caller, lambda _: reply(dropped))
        else:
            reply(dropped)


class RefuseFault(Fault):
    """Closes new connections at once."""

    what = "refuse"

    def __repr__(self) -> str:
        return f"<refuse connections, {self._hits} hits>"

    def takes(self, request: Request[Any], caller: Caller) -> bool:  # noqa: ARG002
        return False


class Faults:
    """The faults of one broker. They act on every client of any kind, and outlive a restart of the broker.

    In common: `topic`, `partition`, `group` and `client_id` say which requests of the API are meant (a request is, when
    anything in it is), `when(request, caller)` decides for whatever else there is, on the broker's thread. `times`
    limits how often a fault happens. Each method returns the `Fault`; several that concern one request all act, in the
    order they were made. Raises `ConfigError` for what an API cannot express, or for an unknown one, listing the known.
    """

    def __init__(self, on_broker_thread: Callable[[Callable[[], None]], None]) -> None:
        """`on_broker_thread` runs a callback there, soon; it may drop it when the broker does not run."""
        self.on_broker_thread = on_broker_thread
        self._lock = threading.Lock()
        self._active: tuple[Fault, ...] = ()

    @property
    def active(self) -> tuple[Fault, ...]:
        """The faults in force."""
        return tuple(fault for fault in self._active if fault.active)

    def error(
        self,
        api: Api,
        code: str | int | ErrorCode,
        *,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        client_id: str | None = None,
        when: When | None = None,
        times: int | None = None,
    ) -> Fault:
        """Answer with an error code, without doing what was asked.

        With `topic` or `partition`, only those are answered so; the rest of a request is done. The error stands where
        the API has a place for it: with each partition, topic or group, or as the answer as a whole.
        """
        which = {"topic": topic, "partition": partition, "group": group, "client_id": client_id}
        return self._add(ErrorFault(self, api, code, **which, when=when, times=times))

    def delay(
        self,
        api: Api | None = None,
        ms: float | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        client_id: str | None = None,
        when: When | None = None,
        times: int | None = None,
    ) -> Fault:
        """Do what was asked, but hold the answer back for `ms`; without `ms`, until the fault is removed."""
        which = {"topic": topic, "partition": partition, "group": group, "client_id": client_id}
        return self._add(DelayFault(self, api, ms, **which, when=when, times=times))

    def drop(
        self,
        api: Api | None = None,
        *,
        after: bool = False,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        client_id: str | None = None,
        when: When | None = None,
        times: int | None = None,
    ) -> Fault:
        """Close the connection in place of an answer; `after`: once it is done what was asked, so that only the answer
        is lost."""
        which = {"topic": topic, "partition": partition, "group": group, "client_id": client_id}
        return self._add(DropFault(self, api, after=after, **which, when=when, times=times))

    def refuse(self, *, times: int | None = None) -> Fault:
        """Close new connections at once; open ones stay open."""
        which = {"topic": None, "partition": None, "group": None, "client_id": None}
        return self._add(RefuseFault(self, None, **which, when=None, times=times))

    def clear(self) -> None:
        """Remove them all."""
        for fault in self._active:
            fault.remove()

    def _add(self, fault: Fault) -> Fault:
        with self._lock:
            self._active = (*self._active, fault)
        return fault

    def forget(self, fault: Fault) -> None:
        """Remove a fault that has ended."""
        with self._lock:
            self._active = tuple(each for each in self._active if each is not fault)

    # --- for the broker's thread

    def refuses(self) -> bool:
        """Return whether a new connection is to be closed."""
        return any(isinstance(fault, RefuseFault) and fault.count() for fault in self._active)

    @property
    def in_the_way(self) -> tuple[Fault, ...]:
        """The faults that each request has to pass, in this order."""
        return self._active


def _call_all(callbacks: list[Callable[[], None]]) -> None:
    for callback in callbacks:
        callback()


def _then(reply: Reply[Any], change: Callable[[Any], Any]) -> Reply[Any]:
    """Return a reply that changes results, and lets errors pass."""
    return lambda result: reply(result if isinstance(result, Exception) else change(result))
