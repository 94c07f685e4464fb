"""Rules of `sasl.kerberos.principal.to.local.rules`, as Kafka's own class answered for the realm EX.COM."""

import pytest

from barnabas.core.security.kerberos_short_namer import KerberosShortNamer, NoMatchingKerberosRule
from barnabas.ports.errors import ConfigError


@pytest.mark.parametrize(
    ("rules", "principal", "name"),
    [
        (["DEFAULT"], "alice/h1@EX.COM", "alice"),
        (["DEFAULT"], "bob@OTHER", None),
        (["RULE:[1:$1]"], "bob@OTHER", "bob"),
        (["RULE:[1:$1]"], "alice/h1@EX.COM", None),
        (["RULE:[1:$1@$0](.*@EX.COM)s/@.*//"], "bob@EX.COM", "bob"),
        (["RULE:[1:$1@$0](.*@EX.COM)s/@.*//"], "bob@OTHER", None),
        (["RULE:[2:$1-$2]/L"], "Alice/H1@EX.COM", "alice-h1"),
        (["RULE:[2:$1](alice)s/a/b/g/U"], "alice/h1@EX.COM", "BLICE"),
        (["RULE:[2:$1@$0]"], "alice/h1@EX.COM", None),
        (["RULE:[1:$1]", "DEFAULT"], "alice/h1@EX.COM", "alice"),
        (["RULE:[1:$1](x.*)s/x(.)/$1/", "DEFAULT"], "xyz@EX.COM", "yz"),
        (["RULE:[1:$1](never)"], "plain", "plain"),
        (["DEFAULT"], "a@b@c", None),
    ],
)
def test_principal_becomes_the_name_that_kafka_gives_it(rules: list[str], principal: str, name: str | None) -> None:
    namer = KerberosShortNamer(rules, "EX.COM")
    if name is None:
        with pytest.raises(NoMatchingKerberosRule, match=principal.split("/", maxsplit=1)[0]):
            namer.short_name(principal)
    else:
        assert namer.short_name(principal) == name


@pytest.mark.parametrize("rule", ["", "RULE:", "RULE:[x:$1]", "RULE:[1:$1](()", "RULE:[1:$1](([)", "default"])
def test_rule_that_is_none_is_refused(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.kerberos\.principal\.to\.local\.rules has"):
        KerberosShortNamer([rule], "EX.COM")
