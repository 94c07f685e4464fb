"""White- and blacklists of topics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.classic.registry.topic_filter import TopicFilter
from barnabas.ports.errors import ConfigError


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("a", "a"),
        (" \t\r\na.* \x00", "a.*"),
        ("a,b , c", "a|b|c"),
        ("'a,b'", "a|b"),
        ("\"'a'\"", "a"),
        ("a'b", "a'b"),
        ("", ""),
        ("' '", ""),
        ("a\tb", "a\tb"),
    ],
)
def test_the_expression_is_cleaned(written: str, text: str) -> None:
    assert TopicFilter.whitelist(written).text == text


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("a,b", ["a", "b"], ["ab", "a,b", ""]),
        ("click.*", ["click", "click.stream", "clicks"], ["doubleclick", "Click"]),
        ("(?i)click", ["CLICK"], ["clicks"]),
        (r"day\d+", ["day1", "day20"], ["day", "day1x", "day\u0661"]),
        ("[a-c]{2}", ["ab"], ["a", "abc"]),
        ("[^.]+", ["a-b"], ["a.b"]),
        ("", [""], ["a"]),
    ],
)
def test_the_whole_name_must_match(text: str, matching: list[str], others: list[str]) -> None:
    white, black = TopicFilter.whitelist(text), TopicFilter.blacklist(text)
    for topic in matching:
        assert white.allows(topic) and not black.allows(topic)
        assert white.pattern.fullmatch(topic) and not black.pattern.fullmatch(topic)
    for topic in others:
        assert not white.allows(topic) and black.allows(topic)
        assert not white.pattern.fullmatch(topic) and black.pattern.fullmatch(topic)


@pytest.mark.parametrize(
    "text",
    ["(", "*", "[a", "[]", "a{99999999999}", r"\p{Alpha}", r"\Qa\E", "(?<n>a)", "(?u)a", "(" * 5000 + ")" * 5000],
)
def test_invalid_topic_filter_is_named_in_the_error(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        TopicFilter.whitelist(text)
    assert repr(text[:50])[1:-1] in str(raised.value)


@pytest.mark.parametrize("text", ["a{1,3}", "a{1,}", "x|a{,3}"])
def test_counts_with_a_comma_are_refused_as_in_java(text: str) -> None:
    with pytest.raises(ConfigError, match="comma means 'or'"):
        TopicFilter.blacklist(text)


@pytest.mark.parametrize(
    "text", ["[a-z&&[^b]]", "[[a]b]", "[a--b]", "[a||b]", "[^~~]", "[" * 1_000_000, "[" * 1_000_000 + "\\", "[[\\"]
)
def test_sets_within_sets_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="set within a set"):
        TopicFilter.whitelist(text)


@pytest.mark.parametrize(
    ("text", "topic"), [(r"\[&&\]", "[&&]"), (r"[\[]", "["), (r"a\{1,3}", "a{1"), ("[]a]", "]"), (r"[&\.&]", ".")]
)
def test_escaped_brackets_are_characters(text: str, topic: str) -> None:
    assert TopicFilter.whitelist(text).allows(topic)


def test_filters_are_values() -> None:
    assert TopicFilter.whitelist("a, b") == TopicFilter.whitelist("a|b") != TopicFilter.blacklist("a|b")
    assert len({TopicFilter.whitelist("a"), TopicFilter.whitelist(" a")}) == 1


@given(st.text(alphabet="ab,.*+?|()[]{}\\^$&-~'\" \t1:<P=!", max_size=12), st.text(alphabet="ab,1", max_size=4))
def test_any_text_is_a_filter_or_a_config_error(text: str, topic: str) -> None:
    try:
        white = TopicFilter.whitelist(text)
    except ConfigError:
        return
    assert white.allows(topic) != TopicFilter.blacklist(text).allows(topic)
    assert "," not in white.text and " " not in white.text
