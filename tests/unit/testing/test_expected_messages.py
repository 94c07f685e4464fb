"""The messages that count as produced, and the output of a failed assertion."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from barnabas.core.message.message import Message
from barnabas.ports.errors import ConfigError
from barnabas.testing.produced import Expectation, bytes_match


def messages(*values: bytes | None, **common: Any) -> list[Message]:
    return [Message(value, partition=0, offset=offset, **common) for offset, value in enumerate(values)]


def expect(
    values: Sequence[Any] | None = None,
    *,
    keys: Sequence[Any] | None = None,
    headers: Sequence[Mapping[str, Any]] | Mapping[str, Any] | None = None,
    count: int | None = None,
    mode: Any = "ordered",
    where: Any = None,
) -> Expectation:
    return Expectation.of(values=values, keys=keys, headers=headers, count=count, mode=mode, where=where)


@pytest.mark.parametrize(
    ("expected", "actual", "is_it"),
    [
        (b"a", b"a", True),
        ("é", "é".encode(), True),
        (None, None, True),
        (None, b"", False),
        ({"a": [1]}, b'{"a": [1]}', True),
        ({"a": 1}, b"not JSON", False),
        ({"a": 1}, None, False),
        (3, b"3", True),
        ([1], b"[1]", True),
        (lambda value: value.startswith(b"x"), b"xyz", True),
        (re.compile(b"x+").fullmatch, b"xy", False),
        (bytearray(b"a"), b"a", True),
    ],
)
def test_keys_and_values(expected: Any, actual: bytes | None, is_it: bool) -> None:
    assert bytes_match(expected, actual) is is_it


def test_ordered_mode_requires_same_messages_in_order() -> None:
    there = messages(b"a", b"b", b"c")
    assert expect(["a", "b", "c"]).failure(there) is None
    assert expect(["a", "c", "b"]).failure(there) == "1 of 3 expected messages are missing"
    assert expect(["a", "b"]).failure(there) == "1 message too many"
    assert expect(["a", "b"]).in_vain(there)
    assert not expect(["a", "b", "c", "d"]).in_vain(there)
    assert not expect(["a", "b", "c"]).in_vain(there)
    assert expect(["a", "c", "b"]).in_vain(there)
    assert expect(["a", "x", "b"], mode="any_order").in_vain(there)
    assert expect(headers={"trace": "1"}, mode="contains").in_vain(there)


def test_in_any_order() -> None:
    there = messages(b"a", b"b", b"b")
    assert expect(["b", "a", "b"], mode="any_order").failure(there) is None
    assert expect(["b", "a", "a"], mode="any_order").failure(there) is not None
    assert expect(["a"], mode="any_order").failure(there) == "2 messages too many"


def test_one_that_fits_two_gives_way() -> None:
    there = messages(b"ab", b"a")
    both = [lambda value: b"a" in value, lambda value: b"b" in value]
    assert expect(both, mode="any_order").failure(there) is None
    assert expect(list(reversed(both)), mode="any_order").failure(there) is None


def test_contains_mode_ignores_other_messages() -> None:
    there = messages(*(b"%d" % number for number in range(10)))
    assert expect(["7", "3"], mode="contains").failure(there) is None
    assert expect(["7", "x"], mode="contains").failure(there) is not None
    assert expect(count=3, mode="contains").failure(there) is None
    assert not expect(["7"], mode="contains").in_vain(there)


def test_expected_count_is_checked() -> None:
    assert expect().failure([]) == "expected a message, found none"
    assert expect().failure(messages(b"a")) is None
    assert expect(count=0).failure([]) is None
    assert expect(count=2).failure(messages(b"a")) == "expected 2 messages, found 1"
    assert expect(count=1).in_vain(messages(b"a", b"b"))


def test_keys_headers_and_a_filter() -> None:
    there = messages(b"a", b"b", key=b"k", headers=(("trace", b"1"), ("more", None)))
    assert expect(["a", "b"], keys=["k", "k"], headers=[{"trace": "1"}, {"more": None}]).failure(there) is None
    assert expect(keys=["k", "other"]).failure(there) is not None
    assert expect(headers={"trace": "1"}).failure(there) is None
    assert expect(headers={"trace": "2"}).failure(there) == "not every message has the headers {'trace': '2'}"
    only_a = expect(["a"], where=lambda message: message.value == b"a")
    assert only_a.failure(only_a.chosen(there)) is None


def test_difference_lists_missing_and_unexpected_messages() -> None:
    there = messages(b"a", b"x", b"c", None)
    assert expect(["a", "b", "c"]).difference(there) == [
        "  0-0: value='a'",
        "+ 0-1: value='x'",
        "- value='b'",
        "  0-2: value='c'",
        "+ 0-3: value=None",
    ]
    shown = expect(["c", "b"], mode="contains").difference(messages(b"c", b"d", key=b"k"))
    assert shown == ["  0-0: value='c' key='k'", "  0-1: value='d' key='k'", "- value='b'"]


def test_a_long_difference_shows_where_it_begins() -> None:
    there = messages(*(b"%d" % number for number in range(1000)))
    wanted = [str(number) for number in range(1000) if number != 500]
    lines = expect(wanted).difference(there)
    assert "+ 0-500: value='500'" in lines
    assert len(lines) == 22
    assert lines[0] == "  … 495 more"
    big = expect(["no"]).difference(messages(b"v" * 1000))
    assert len(big[0]) < 200


def test_many_messages_in_any_order_are_quick() -> None:
    values = [b"%d" % number for number in range(20_000)]
    assert expect(list(reversed(values)), mode="any_order").failure(messages(*values)) is None


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"values": "abc"}, "values='abc': give a list"),
        ({"keys": b"abc"}, "keys=b'abc': give a list"),
        ({"values": ["a"], "keys": ["k", "l"]}, "different lengths"),
        ({"mode": "sorted"}, "mode='sorted': give ordered, any_order, contains"),
    ],
)
def test_invalid_expectation_is_an_error(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        expect(**given)


def test_difference_names_the_parts_that_differ() -> None:
    there = messages(b'{"c": "ann", "n": 1}', key=b"ann")
    assert expect([{"c": "bob", "n": 1, "m": None}], keys=["ann"]).difference(there) == [
        '+ 0-0: value={"c": "ann", "n": 1} key=\'ann\'',
        '- value={"c": "bob", "n": 1, "m": null} key=\'ann\'',
        '? 0-0: value["c"]: expected "bob", found "ann"',
        '? 0-0: value["m"]: expected null, found none',
    ]
    assert expect(["x"], keys=["k"]).difference(messages(b"x", key=b"other"))[-1] == (
        "? 0-0: key: expected 'k', found 'other'"
    )
    headed = expect(["x"], headers=[{"trace": "1"}]).difference(messages(b"x"))
    assert headed[-1] == "? 0-0: header 'trace': expected '1', found none"


def test_bytes_that_are_no_text_are_shown_as_bytes() -> None:
    assert expect(["x"]).difference(messages(b"\xff"))[0] == "+ 0-0: value=b'\\xff'"


def test_key_that_alone_differs_is_named() -> None:
    there = messages(b"a")
    assert expect(keys=["bob"]).difference(there)[-1] == "? 0-0: key: expected 'bob', found None"
    assert expect(["a"], keys=["bob"]).difference(there)[-1] == "? 0-0: key: expected 'bob', found None"
