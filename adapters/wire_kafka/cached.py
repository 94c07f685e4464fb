"""Values that are sent again and again, each written once."""

from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar, cast

from ...ports.types import Buffer
from .schema import Struct
from .wire import Reader, Writer


class KeepsBytes(Protocol):
    """A value that may hold the bytes that it was sent as."""

    @property
    def encoded(self) -> dict[int, bytes] | None: ...


CachedT = TypeVar("CachedT", bound=KeepsBytes)


class Cached(Generic[CachedT]):
    """A codec for values that are sent repeatedly (`encoded` is a mapping): each is written once per version."""

    has_steps = True

    def __init__(self, layout: Struct[CachedT]) -> None:
        self._layout = layout

    def read(self, reader: Reader, version: int) -> CachedT:
        return self._layout.read(reader, version)

    def write(self, writer: Writer, version: int, value: CachedT) -> None:
        for _ in self.write_in_steps(writer, version, value):
            pass

    def write_in_steps(self, writer: Writer, version: int, value: CachedT) -> Iterator[None]:
        encoded = value.encoded
        if encoded is None:
            yield from self._layout.write_in_steps(writer, version, value)
            return
        content = encoded.get(version)
        if content is None:
            part = type(writer)()
            yield from self._layout.write_in_steps(part, version, value)
            content = encoded[version] = b"".join(cast(Sequence[Buffer], part.pieces()))
        writer.raw(content)
