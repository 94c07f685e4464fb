"""Regular expressions of clients: what Python's `re` says of those that both have, and never a long time."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.coordinator.regular_expression import RegularExpression
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError


def matches(pattern: str, text: str) -> bool:
    steps = RegularExpression(pattern).matches(text)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bool(end.value)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("abc", ["abc"], ["", "ab", "abcd", "xabc"]),
        ("", [""], ["a"]),
        ("my-.*", ["my-", "my-app-1"], ["my", "not my-app"]),
        ("a|b|", ["a", "b", ""], ["ab"]),
        ("(ab)+c?", ["ab", "ababc"], ["", "c", "aab"]),
        ("a{2}b{1,3}c{0,}", ["aab", "aabbbcc"], ["ab", "aabbbb", "aaab"]),
        ("a{,3}", ["a{,3}"], ["aa"]),
        ("[a-c_-]+", ["abc_-"], ["abd"]),
        ("[^a-c]", ["d", "-"], ["a", ""]),
        ("[]a]+", ["]a"], ["b"]),
        (r"[\d.]+", ["1.2"], ["1,2"]),
        (r"\d{3}\s\w+\D", ["123 ab_!"], ["12 ab!"]),
        (r"a\.b", ["a.b"], ["axb"]),
        (r"\Qa.b*\E+", ["a.b*", "a.b**"], ["axb", "a.b*a.b*"]),
        (r"\x41\x{e9}", ["Aé"], ["A"]),
        ("(?i)Straße[a-c]", ["STRAßEA", "straßec"], ["strase", "strassea", "straßed"]),
        ("(?i:a)b", ["Ab", "ab"], ["AB"]),
        ("(?P<name>a)(?<other>b)(?:c)", ["abc"], ["ab"]),
        ("[[:alpha:]]+[[:^digit:]]", ["ab-"], ["ab1", "1-"]),
        (r"\p{L}+\pN\P{L}", ["éa1-"], ["1-", "a1b"]),
        ("^ab$", ["ab"], ["a"]),
        (r"\bab\b.*", ["ab", "ab c"], ["abc"]),
        ("a.c", ["abc"], ["a\nc"]),
        ("(?s)a.c", ["abc", "a\nc"], ["ac"]),
        ("(a*)*", ["", "aaa"], ["b"]),
        ("(a|b*)+c", ["c", "abbac"], ["ab"]),
    ],
)
def test_regular_expression_matches_as_re2_does(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [text for text in yes if not matches(pattern, text)] == []
    assert [text for text in no if matches(pattern, text)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", ")", "a)", "[", "[a", "[b-a]", "*", "a**", "a++", "a{2}{3}", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)"),
        *(r"(a)\1", r"\y", "\\", "(?>a)", "(?x)", "[[:nope:]]", r"\p{Greek}", r"\p{", "a{3,2}", "a{1001}"),
        *("((a{100}){100}){100}", "(" * 200 + ")" * 200, "a" * 1001, r"\x{110000}", r"\xzz", "(?P<>a)", "(?P=n)"),
    ],
)
def test_malformed_regular_expression_is_an_error(pattern: str) -> None:
    with pytest.raises(ApiError) as refused:
        RegularExpression(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_no_expression_takes_long() -> None:
    """Python's `re` takes practically for ever for each of these."""
    text = "a" * 500 + "!"
    for pattern in ("(a+)+", "(a|a)*", "(a|aa)+", "a*a*a*a*a*a*b", "(.*)*x", "(a?){100}a{100}"):
        assert not matches(pattern, text)


def test_a_long_text_is_looked_at_in_steps() -> None:
    assert sum(1 for _ in RegularExpression("(a?){300}b").matches("a" * 1000)) > 1


_ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", "^", "$", r"\b"])
_PATTERNS = st.recursive(
    _ATOMS,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,}", "*?"])).map(
            lambda x: f"(?:{x[0]}){x[1]}"
        )
        | st.lists(inner, max_size=3).map("".join)
        | st.lists(inner, min_size=1, max_size=3).map(lambda x: f"({'|'.join(x)})")
    ),
    max_leaves=6,
)


@given(_PATTERNS, st.text("ab-", max_size=6))
def test_python_says_the_same(pattern: str, text: str) -> None:
    assert matches(pattern, text) == (re.fullmatch(pattern.replace("$", r"\Z"), text, re.ASCII) is not None)


@given(st.text("ab(|)[]*+?{}12,.^$\\-pLdQEx:=<!i", max_size=12))
def test_any_text_is_an_expression_or_refused(pattern: str) -> None:
    try:
        matches(pattern, "ab1")
    except ApiError as error:
        assert error.code is ErrorCode.INVALID_REGULAR_EXPRESSION
