"""JAAS lines as Kafka reads them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.security.jaas import parse_jaas, parse_one_login_module
from barnabas.ports.errors import ConfigError
from barnabas.ports.values import Secret

KEY = "sasl.jaas.config"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('M required username="alice" password="a b";', {"username": "alice", "password": "a b"}),
        ("M required username='alice';", {"username": "alice"}),
        ("M  REQUIRED\n username=alice\n;", {"username": "alice"}),
        (r'M required password="a\"b\\c\n\101";', {"password": 'a"b\\c\nA'}),
        ('M required password="a;b=c//d/*e*/";', {"password": "a;b=c//d/*e*/"}),
        ('M required /* c */ a="1" // end\n b="2";', {"a": "1", "b": "2"}),
        ('M required user_alice="x" user_b.c-d="y";', {"user_alice": "x", "user_b.c-d": "y"}),
        ("M optional;", {}),
    ],
)
def test_login_module_with_its_options(text: str, options: dict[str, str]) -> None:
    entry = parse_one_login_module(Secret(text), KEY)
    assert entry.module == "M"
    assert {name: value.value for name, value in entry.options.items()} == options


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "contains 0 login modules"),
        ("M", "control flag is not specified"),
        ("M maybe;", "control flag of M is none of required"),
        ('M required password="s3cret"', "not terminated by a semicolon"),
        ('M required password="s3cret', "is not closed"),
        ("M required password=;", "has no value"),
        ('M required s3cret "x";', "has no value"),
        ("M required =;", "has no name"),
        ('M required a="s3cret" a="s3cret";', "given twice"),
        ('M required password="x" s3cret{};', "unexpected character"),
        ("M required; N required;", "contains 2 login modules, should be 1"),
        ("M required /* s3cret", "comment is not closed"),
    ],
)
def test_wrong_line_is_refused_without_its_values(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        parse_one_login_module(Secret(text), KEY)
    assert KEY in str(caught.value)
    assert "s3cret" not in str(caught.value)


@given(st.text(max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(ConfigError):
        parse_jaas(Secret(text), KEY)


@given(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=30))
def test_quoted_password_survives(password: str) -> None:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    entry = parse_one_login_module(Secret(f'M required password="{quoted}";'), KEY)
    assert entry.option("password") == password
