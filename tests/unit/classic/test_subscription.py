"""The registry's entries for a consumer's topics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.classic.registry.subscription import STREAMS_MAX, ClassicSubscription
from barnabas.core.classic.registry.topic_filter import TopicFilter
from barnabas.ports.errors import ConfigError


@pytest.mark.parametrize(
    ("subscription", "data"),
    [
        (ClassicSubscription.topics({"topic1": 2, "topic2": 1}), b'{ "topic1": 2,"topic2": 1 }'),
        (ClassicSubscription.topics({"one": 1}), b'{ "one": 1 }'),
        (ClassicSubscription.topics({}), b"{  }"),
        (ClassicSubscription.topics({"\u00fcber": 3}), '{ "\u00fcber": 3 }'.encode()),
        (ClassicSubscription.topics({'a"b\\': 1}), b'{ "a\\"b\\\\": 1 }'),
        (ClassicSubscription.filter(TopicFilter.whitelist("a.*, b"), 3), b"*3*a.*|b"),
        (ClassicSubscription.filter(TopicFilter.blacklist("*a!b".replace("*", ".")), 1), b"!1!.a!b"),
    ],
)
def test_the_exact_text_and_back(subscription: ClassicSubscription, data: bytes) -> None:
    assert subscription.encode() == data
    assert ClassicSubscription.decode(data) == subscription


@pytest.mark.parametrize("data", [b'{"a":1,"b":2}', b' {\n "a" : 1 ,\t"b" : 2 }\n', b'{"\\u0061": 1, "b": 2}'])
def test_other_spellings_are_understood(data: bytes) -> None:
    assert ClassicSubscription.decode(data) == ClassicSubscription.topics({"a": 1, "b": 2})


def test_the_expression_may_hold_the_mark() -> None:
    assert ClassicSubscription.decode(b"*2*.*x*") == ClassicSubscription.filter(TopicFilter.whitelist(".*x*"), 2)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b" ", b"null", b"[]", b'["a"]', b'"a"', b"7", b"{", b"\xff", b"\x00", b"garbage"),
        *(b'{"a": "1"}', b'{"a": 1.0}', b'{"a": true}', b'{"a": null}', b'{"a": {}}', b'{"a": 0}', b'{"a": -1}'),
        *(b'{"a": 1e999}', b'{"a": NaN}', b'{"a": 1} x', b'{"a": 99999999}', b'{"a": ' + b"9" * 5000 + b"}"),
        *(b'{"": 1}', b'{"a/b": 1}', b'{"..": 1}', b'{"a\\u0000": 1}', b'{"\\ud800": 1}', b"{1: 1}"),
        *(b"*", b"*2", b"*2!a", b"!2*a", b"**a", b"*0*a", b"*-1*a", b"*x*a", b"*99999999*a", b"*1*(", b"!1![[a]]"),
        *(b"[" * 500_000, b'{"a":' * 100_000, b"*" * 500_000, "*\u0661*a".encode()),
    ],
)
def test_garbage_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        ClassicSubscription.decode(data)


@given(st.binary(max_size=40) | st.text(alphabet='*!12{}":, ab\\[(', max_size=20).map(str.encode))
def test_any_bytes_decode_or_are_a_value_error(data: bytes) -> None:
    try:
        found = ClassicSubscription.decode(data)
    except ValueError:
        return
    assert ClassicSubscription.decode(found.encode()) == found


_NAMES = st.text(alphabet=st.characters(exclude_categories=("C", "Z"), exclude_characters="/"), min_size=1).filter(
    lambda name: name.isprintable() and name not in (".", "..")
)


@given(st.dictionaries(_NAMES, st.integers(1, STREAMS_MAX)))
def test_subscription_topics_survive_encode_and_decode(streams: dict[str, int]) -> None:
    found = ClassicSubscription.decode(ClassicSubscription.topics(streams).encode())
    assert found.expand(["other"]) == streams


@pytest.mark.parametrize("streams", [0, -1, STREAMS_MAX + 1])
def test_numbers_of_streams_have_bounds(streams: int) -> None:
    with pytest.raises(ConfigError, match=str(streams)):
        ClassicSubscription.topics({"a": streams})
    with pytest.raises(ConfigError, match=str(streams)):
        ClassicSubscription.filter(TopicFilter.whitelist("a"), streams)


@pytest.mark.parametrize("topic", ["", "a/b", ".", "..", "a\n"])
def test_topics_are_parts_of_paths(topic: str) -> None:
    with pytest.raises(ConfigError, match="topic"):
        ClassicSubscription.topics({topic: 1})


def test_filters_expand_to_the_topics_there_are() -> None:
    everything = ["apple", "avocado", "banana"]
    white = ClassicSubscription.filter(TopicFilter.whitelist("a.*"), 2)
    assert white.expand(everything) == {"apple": 2, "avocado": 2}
    assert white.expand([]) == {}
    assert ClassicSubscription.filter(TopicFilter.blacklist("a.*"), 1).expand(everything) == {"banana": 1}


def test_topics_by_name_count_before_they_exist() -> None:
    assert ClassicSubscription.topics({"later": 2}).expand([]) == {"later": 2}


def test_a_subscription_keeps_no_hold_on_the_mapping_it_was_made_from() -> None:
    streams = {"a": 1}
    subscription = ClassicSubscription.topics(streams)
    streams["b"] = 1
    assert subscription.expand([]) == {"a": 1}
