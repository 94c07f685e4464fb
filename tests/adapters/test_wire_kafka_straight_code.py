"""The code of a struct does what its description says: the same bytes, the same values, the same refusals."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from attrs import define
from hypothesis import given
from hypothesis import strategies as st
from support.kafka_samples import SAMPLES
from support.mutilated import mutilated

from barnabas.adapters.wire_kafka import schema
from barnabas.adapters.wire_kafka.fetch import Answered
from barnabas.adapters.wire_kafka.schema import ERROR_TEXT, TEXT, UUID, Field, Struct
from barnabas.adapters.wire_kafka.table import BY_KEY
from barnabas.adapters.wire_kafka.wire import (
    DECODE_ERRORS,
    ENCODE_ERRORS,
    CompactReader,
    CompactWriter,
    Reader,
    Writer,
)
from barnabas.ports.errors import Malformed

ITEMS_MAX = 1_000
_VERSIONS = [
    (key, version) for key in SAMPLES for version in range(BY_KEY[key].versions[0], BY_KEY[key].versions[1] + 1)
]


@contextmanager
def _always(patch: pytest.MonkeyPatch, *, code: bool) -> Iterator[None]:
    """Let every struct be read and written by its code, or field by field."""
    functions: dict[tuple[Any, ...], Any] = {}

    def function(struct: Struct[Any], make: Callable[..., Any], version: int, is_compact: bool) -> Any:
        key = id(struct), make.__name__, version, is_compact
        if key not in functions:
            functions[key] = make(version, is_compact=is_compact)
        return functions[key]

    def read(struct: Struct[Any], reader: Reader, version: int, *given: Any) -> Any:
        return function(struct, struct.read_function, version, reader.is_compact)(reader, version, *given)

    def write(struct: Struct[Any], writer: Writer, version: int, value: Any) -> None:
        function(struct, struct.write_function, version, writer.is_compact)(writer, version, value)

    with patch.context() as within:
        within.setattr(Struct, "read", read if code else Struct.read_by_fields)
        within.setattr(Struct, "read_with", read if code else Struct.read_by_fields)
        within.setattr(Struct, "write", write if code else Struct.write_by_fields)
        within.setattr(schema, "_OFTEN", -1)
        yield


def _written(codec: Any, version: int, value: Any, *, is_compact: bool) -> bytes | None:
    """Return the bytes; None if the value is refused."""
    writer = CompactWriter() if is_compact else Writer()
    try:
        codec.write(writer, version, value)
    except ENCODE_ERRORS:
        return None
    return b"".join(bytes(piece) for piece in writer.pieces())  # type: ignore[arg-type]


def _read(codec: Any, version: int, content: bytes, *, is_compact: bool) -> tuple[Any, int] | None:
    """Return the value and its end; None if the bytes are refused."""
    reader = (CompactReader if is_compact else Reader)(memoryview(content), 0, ITEMS_MAX)
    try:
        return codec.read(reader, version), reader.position
    except (Malformed, *DECODE_ERRORS):
        return None
    except Answered as answered:
        return answered.result, 0


def _both(run: Callable[[], Any]) -> Any:
    """Return what field by field and the code return alike."""
    with pytest.MonkeyPatch.context() as patch:
        with _always(patch, code=False):
            by_fields = run()
        with _always(patch, code=True):
            assert run() == by_fields
    return by_fields


@pytest.mark.parametrize(("key", "version"), _VERSIONS)
def test_sample_of_every_api_is_the_same_by_code_and_by_fields(key: int, version: int) -> None:
    api, sample = BY_KEY[key], SAMPLES[key].at(version)
    is_compact = version >= api.flexible_from
    for codec, value in ((api.request, sample.request), (api.result, sample.result)):
        content = _both(partial(_written, codec, version, value, is_compact=is_compact))
        assert content is not None
        assert _both(partial(_read, codec, version, content, is_compact=is_compact)) is not None


@given(data=st.data(), of=st.sampled_from(_VERSIONS))
def test_damaged_bytes_are_read_or_refused_by_code_as_by_fields(data: st.DataObject, of: tuple[int, int]) -> None:
    key, version = of
    api, sample = BY_KEY[key], SAMPLES[key].at(version)
    is_compact = version >= api.flexible_from
    for codec, value in ((api.request, sample.request), (api.result, sample.result)):
        content = _written(codec, version, value, is_compact=is_compact)
        assert content is not None
        damaged = data.draw(mutilated(content))
        _both(partial(_read, codec, version, damaged, is_compact=is_compact))


@define
class _Value:
    text: str = ""
    reason: str | None = None
    id: bytes = bytes(16)


_STRUCT = Struct(_Value, Field("text", TEXT), Field("reason", ERROR_TEXT), Field("id", UUID))


@pytest.mark.parametrize("is_compact", [True, False])
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 300, 0x7FFF, 0x8000])
def test_strings_of_every_length_are_written_by_code_as_by_fields(size: int, *, is_compact: bool) -> None:
    value = _Value("x" * size, "y" * size)
    content = _both(partial(_written, _STRUCT, 0, value, is_compact=is_compact))
    assert (content is None) == (size > 0x7FFF)
    if content is not None:
        assert _both(partial(_read, _STRUCT, 0, content, is_compact=is_compact)) is not None


@pytest.mark.parametrize("size", [0, 15, 17])
def test_id_of_a_wrong_length_is_refused_by_code_as_by_fields(size: int) -> None:
    assert _both(partial(_written, _STRUCT, 0, _Value(id=bytes(size)), is_compact=True)) is None


def test_struct_becomes_code_when_it_is_used_often() -> None:
    struct = Struct(_Value, Field("text", TEXT))
    written = {_written(struct, 0, _Value("a"), is_compact=True) for _ in range(300)}
    assert written == {b"\x02a\x00"}
    assert all(_read(struct, 0, b"\x02a\x00", is_compact=True) == (_Value("a"), 3) for _ in range(300))
