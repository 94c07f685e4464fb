"""One message, as a user sends and receives it."""

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, overload

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"

Headers = tuple[tuple[str, bytes | None], ...]

if TYPE_CHECKING:
    # A type checker sees a class in place of the named tuple: generic in the decoders, and with a name in its errors.
    from typing_extensions import TypeVar

    ValueT_co = TypeVar("ValueT_co", covariant=True, default=bytes | None)
    KeyT_co = TypeVar("KeyT_co", covariant=True, default=bytes | None)
    ValueT = TypeVar("ValueT")
    KeyT = TypeVar("KeyT")

    class Message(tuple[Any, ...], Generic[ValueT_co, KeyT_co]):
        """A record of a topic, see below."""

        _fields: ClassVar[tuple[str, ...]]

        @overload
        def __new__(
            cls,
            value: bytes | None,
            key: bytes | None = None,
            headers: Headers = (),
            timestamp_ms: int | None = None,
            topic: str = "",
            partition: int = -1,
            offset: int = -1,
            timestamp_type: str = CREATE_TIME,
        ) -> "Message": ...

        @overload
        def __new__(
            cls,
            value: ValueT,
            key: bytes | None = None,
            headers: Headers = (),
            timestamp_ms: int | None = None,
            topic: str = "",
            partition: int = -1,
            offset: int = -1,
            timestamp_type: str = CREATE_TIME,
        ) -> "Message[ValueT]": ...

        @overload
        def __new__(
            cls,
            value: ValueT,
            key: KeyT,
            headers: Headers = (),
            timestamp_ms: int | None = None,
            topic: str = "",
            partition: int = -1,
            offset: int = -1,
            timestamp_type: str = CREATE_TIME,
        ) -> "Message[ValueT, KeyT]": ...

        def __new__(cls, value: Any, *rest: Any, **named: Any) -> Any: ...

        @property
        def value(self) -> ValueT_co: ...
        @property
        def key(self) -> KeyT_co: ...
        @property
        def headers(self) -> Headers: ...
        @property
        def timestamp_ms(self) -> int | None: ...
        @property
        def topic(self) -> str: ...
        @property
        def partition(self) -> int: ...
        @property
        def offset(self) -> int: ...
        @property
        def timestamp_type(self) -> str: ...

        _asdict: Callable[[], dict[str, Any]]

        def _replace(self, **changes: Any) -> "Message[Any, Any]": ...
        @classmethod
        def _make(cls, fields: Any) -> Self: ...

    class ShareMessage(Message[ValueT_co, KeyT_co]):
        """A message of a share group, see below."""

        @property
        def delivery_count(self) -> int: ...
        def _replace(self, **changes: Any) -> "ShareMessage[Any, Any]": ...

else:
    from typing import TypeVar

    ValueT_co = TypeVar("ValueT_co", covariant=True)
    KeyT_co = TypeVar("KeyT_co", covariant=True)

    class Message(NamedTuple):
        """A record of a topic. Only the value is needed to send one; a None value is a tombstone on compacted topics.

        `timestamp_ms` None means "now" when sent. Topic, partition, offset and timestamp type are set on received
        messages. For type checkers it is generic: `Message[V, K]` has the types of values and keys that the decoders
        make, by default `bytes | None`. A named tuple, not an attrs class: a reader makes millions of them, and
        `tuple.__new__` over `zip` runs in C.
        """

        value: bytes | None
        key: bytes | None = None
        headers: Headers = ()
        timestamp_ms: int | None = None
        topic: str = ""
        partition: int = -1
        offset: int = -1
        timestamp_type: str = CREATE_TIME

        def __repr__(self) -> str:
            """Return the place first, then key and value, without the fields that have their defaults."""
            defaults = self._field_defaults
            named = ((name, getattr(self, name)) for name in _SHOWN)
            shown = (f"{name}={each!r}" for name, each in named if name == "value" or each != defaults[name])
            return f"Message({', '.join(shown)})"

    class ShareMessage(Message):
        """A message of a share group. `delivery_count` is 1 at its first delivery, and larger at each later one.

        For all else it is a `Message`, with one element more.
        """

        __slots__ = ()
        _fields = (*Message._fields, "delivery_count")
        _field_defaults: ClassVar[dict[str, Any]] = {**Message._field_defaults, "delivery_count": 0}
        delivery_count = property(itemgetter(len(Message._fields)))

        def __new__(cls, value: bytes | None, *rest: Any, delivery_count: int = 0, **named: Any) -> Self:
            """Make one of the fields of a `Message` and the delivery count, which may be the ninth argument."""
            if len(rest) == len(Message._fields):
                *rest, delivery_count = rest
            return tuple.__new__(cls, (*Message(value, *rest, **named), delivery_count))

        @classmethod
        def _make(cls, iterable: Iterable[Any]) -> Self:
            return cls(*iterable)

        def _replace(self, **changes: Any) -> Self:
            return type(self)(**{**self._asdict(), **changes})

        def __repr__(self) -> str:
            return f"Share{Message.__repr__(self)[:-1]}, delivery_count={self.delivery_count})"


_SHOWN = ("topic", "partition", "offset", "key", "value", "headers", "timestamp_ms", "timestamp_type")
