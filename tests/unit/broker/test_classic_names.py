"""Valid and invalid names of classic topics."""

import pytest

from barnabas.app.broker.state.classic_topics import check_classic_topic
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

LEGAL = [
    "t",
    "a-1",
    "a.b_c",
    "...",
    "with space",
    "ünïcödé",
    "日本",
    "a" * 253,
    "*",
    "back\\slash",
    "x:y",
    "\U0001f600",
]
ILLEGAL = [
    "",
    ".",
    "..",
    "a/b",
    "/",
    "\0",
    "a\nb",
    "\x1f",
    "\x7f",
    "\x9f",
    "\ud800",
    "\ue000",
    "\uf8ff",
    "\uffff",
    "\u200b",
]
UNPRINTABLE = ["\u200b", "a\u2028b"]
TOO_LONG = ["a" * 256, "a" * 254, "日" * 100]


@pytest.mark.parametrize("name", LEGAL)
def test_legal_classic_topic_names_are_accepted(name: str) -> None:
    check_classic_topic(name)


@pytest.mark.parametrize("name", [*ILLEGAL, *UNPRINTABLE, *TOO_LONG])
def test_illegal_classic_topic_names_raise_invalid_topic_exception(name: str) -> None:
    with pytest.raises(ApiError) as raised:
        check_classic_topic(name)
    assert raised.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    str(raised.value).encode()


def test_a_large_partition_number_counts() -> None:
    check_classic_topic("a" * 253, 9)
    with pytest.raises(ApiError, match="folder"):
        check_classic_topic("a" * 253, 10)
