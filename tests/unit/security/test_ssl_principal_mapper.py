"""The names of principals from certificates equal those of Kafka's SslPrincipalMapper (facts A8)."""

import pytest

from barnabas.core.security.ssl_principal_mapper import NoMatchingRule, SslPrincipalMapper
from barnabas.ports.errors import ConfigError

SUBJECT = "CN=kafka1,OU=SME,O=mycp,L=Fulton,ST=MD,C=US"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        (None, SUBJECT),
        ("DEFAULT", SUBJECT),
        ("RULE:^CN=(.*?),.*$/$1/", "kafka1"),
        ("RULE:^CN=(.*?),.*$/$1/U", "KAFKA1"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L, DEFAULT", "kafka1@sme"),
        ("RULE:^nothing$/x/,RULE:^CN=(.*?),.*$/$1/ ,DEFAULT", "kafka1"),
        (r"RULE:^CN=(.*?),.*$/$1\/host/", "kafka1/host"),
        ("RULE:^CN=(?<who>.*?),.*$/${who}/", "kafka1"),
        ("RULE:(.*)/<$1>/", f"<{SUBJECT}><>"),
    ],
)
def test_first_rule_that_matches_makes_the_name(rules: str | None, name: str) -> None:
    assert SslPrincipalMapper(rules).name_of(SUBJECT) == name


@pytest.mark.parametrize("rules", ["RULE:CN=(.*?),OU=/$1/", ""])
def test_no_rule_that_matches_is_an_error(rules: str) -> None:
    with pytest.raises(NoMatchingRule, match="CN=kafka1"):
        SslPrincipalMapper(rules).name_of(SUBJECT)


@pytest.mark.parametrize("rules", ["RULE:", "foo", "DEFAULT foo", "RULE:(/x/", "RULE:(a)/$2/", "DEFAULT,,x"])
def test_bad_rules_are_a_configuration_error(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        SslPrincipalMapper(rules)
