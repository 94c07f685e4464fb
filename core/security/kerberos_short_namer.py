"""From the principal of a Kerberos ticket to the name of a user: `sasl.kerberos.principal.to.local.rules`.

Kafka's `KerberosShortNamer`: the first rule that fits the number of components and the pattern makes the name.
"""

import re
from collections.abc import Sequence

from ...ports.errors import ConfigError
from ...ports.values import frozen

_NAME = r"([^/@]*)(?:/([^/@]*))?@([^/@]*)"
_RULE = r"(DEFAULT)|RULE:\[(\d*):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?([LU])?"  # Kafka's RULE_PARSER
_PARAMETER = r"\$(\d+)"
_KEY = "sasl.kerberos.principal.to.local.rules"


class NoMatchingKerberosRule(Exception):
    """No rule makes a name of the principal; its text names the principal."""


@frozen(kw_only=True)
class _Rule:
    components: int
    form: str
    match: re.Pattern[str] | None
    pattern: re.Pattern[str] | None
    replacement: str
    every: bool
    case: str

    def apply(self, parameters: Sequence[str]) -> str | None:
        """`parameters`: the realm, and the components."""
        if len(parameters) - 1 != self.components:
            return None
        name = re.sub(_PARAMETER, lambda found: _parameter(parameters, int(found[1])), self.form)
        if self.match is not None and self.match.fullmatch(name) is None:
            return None
        if self.pattern is not None:
            name = self.pattern.sub(self.replacement, name, count=0 if self.every else 1)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


def _parameter(parameters: Sequence[str], number: int) -> str:
    return parameters[number] if number < len(parameters) else ""


class KerberosShortNamer:
    """Maps principals to names. `default_realm`: the realm whose principals the rule DEFAULT accepts."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """Raises `ConfigError`."""
        self._default_realm = default_realm
        self._rules = [_parse(rule.strip()) for rule in rules]

    def short_name(self, principal: str) -> str:
        """Return the name of the user. Raises `NoMatchingKerberosRule`."""
        match = re.fullmatch(_NAME, principal)
        if match is None:
            if "@" in principal or "/" in principal:
                raise NoMatchingKerberosRule(f"the Kerberos principal {principal[:200]!r} is malformed")
            return principal
        primary, host, realm = match.groups()
        parameters = [realm, primary, *([] if host is None else [host])]
        for rule in self._rules:
            name = (primary if realm == self._default_realm else None) if rule is None else rule.apply(parameters)
            if name is None:
                continue
            if "/" in name or "@" in name:
                break
            return name
        raise NoMatchingKerberosRule(f"no rule of {_KEY} makes a name of the Kerberos principal {principal[:200]!r}")


def _parse(rule: str) -> _Rule | None:
    """Return a rule; None for DEFAULT. Raises `ConfigError`."""
    match = re.fullmatch(_RULE, rule)
    if match is None:
        text = "expected DEFAULT or RULE:[COMPONENTS:FORM](PATTERN)s/PATTERN/REPLACEMENT/g/L"
        raise ConfigError(f"{_KEY} has {rule[:200]!r}: {text}")
    default, components, form, wanted, pattern, replacement, every, case = match.groups()
    if default:
        return None
    try:
        return _Rule(
            components=int(components or 0),
            form=form,
            match=re.compile(wanted) if wanted else None,
            pattern=None if pattern is None else re.compile(pattern),
            replacement=re.sub(_PARAMETER, r"\\g<\1>", (replacement or "").replace("\\", r"\\")),
            every=bool(every),
            case=case or "",
        )
    except re.error as error:
        raise ConfigError(f"{_KEY} has {rule[:200]!r}: its pattern is none: {error}") from None
