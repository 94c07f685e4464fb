"""From the subject of a client's certificate to the name of its principal: `ssl.principal.mapping.rules`.

Kafka's `SslPrincipalMapper`: the first rule whose pattern matches the whole subject makes the name.
"""

import re

from ...ports.errors import ConfigError
from ...ports.values import frozen

_RULE = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_GROUP = re.compile(r"\\(.)|\$(\d)|\$\{(\w+)\}")
_KEY = "ssl.principal.mapping.rules"


class NoMatchingRule(Exception):
    """No rule matches the subject of the certificate; its text names the subject."""


@frozen
class _Rule:
    pattern: re.Pattern[str] | None
    """None: the rule DEFAULT, the subject itself."""
    replacement: str = ""
    case: str = ""

    def name_of(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        # Java's replaceAll: a pattern that also matches the empty rest, such as (.*), replaces that, too.
        name = self.pattern.sub(lambda match: _expand(self.replacement, match), subject)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


class SslPrincipalMapper:
    """Maps subjects to names. `rules`: the text of the configuration; None: DEFAULT. Raises `ConfigError`."""

    def __init__(self, rules: str | None = None) -> None:
        self._rules = [_Rule(None)] if rules is None else _parse(rules)

    def name_of(self, subject: str) -> str:
        """Return the name for a subject, the text of RFC 2253. Raises `NoMatchingRule`."""
        for rule in self._rules:
            name = rule.name_of(subject)
            if name is not None:
                return name
        raise NoMatchingRule(f"no rule of {_KEY} matches {subject}")


def _parse(text: str) -> list[_Rule]:
    rules: list[_Rule] = []
    at, text = 0, text.strip()
    while at < len(text):
        found = _RULE.match(text, at)
        end = len(text) if found is None else found.end()
        separator = re.compile(r"\s*(,\s*|$)").match(text, end)
        if found is None or separator is None:
            raise ConfigError(
                f"{_KEY}: invalid rule at {text[at : at + 100]!r}; give DEFAULT or RULE:pattern/replacement/"
            )
        if found[1]:
            rules.append(_Rule(None))
        else:
            pattern = _compiled(found[2].replace(r"\/", "/"))
            rules.append(_Rule(pattern, found[3].replace(r"\/", "/"), found[4]))
            _check_groups(rules[-1])
        at = separator.end()
    return rules


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", pattern))
    except re.error as error:
        raise ConfigError(f"{_KEY}: {pattern[:100]!r} is not a regular expression: {error}") from None


def _check_groups(rule: _Rule) -> None:
    pattern = rule.pattern
    for found in _GROUP.finditer(rule.replacement):
        if pattern is None or found[1]:
            continue
        if (found[2] and int(found[2]) > pattern.groups) or (found[3] and found[3] not in pattern.groupindex):
            raise ConfigError(f"{_KEY}: {rule.replacement[:100]!r} names the group {found[0]}, which the pattern lacks")


def _expand(replacement: str, match: re.Match[str]) -> str:
    """Expand a Java replacement text: `$1` and `${name}` are groups, a backslash quotes the next character."""

    def text(found: re.Match[str]) -> str:
        if found[1]:
            return found[1]
        return (match[int(found[2])] if found[2] else match[found[3]]) or ""

    return _GROUP.sub(text, replacement)
