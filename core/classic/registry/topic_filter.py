"""White- and blacklists of topics, written as regular expressions (facts A8).

The expressions are Python's (`re`, with `re.ASCII`), where Kafka 0.7 has Java's. What filters are made of (names, '.',
'*', '+', '|', classes, groups) means the same in both. These differ: `\\p{...}` and `\\Q...\\E` do not compile here;
named groups are `(?P<name>...)`; sets within sets (`[a-z&&[^b]]`) are refused, because Python would read them
otherwise; a '{' that counts nothing is an ordinary character here and an error there.

As every comma means "or", counts such as `{1,3}` cannot be written (Java refuses them, too).

The expression is trusted: one with nested repetition, `(a+)+b`, can take exponential time on a name made to fit.
"""

import re

from attrs import Factory, field

from ....ports.errors import ConfigError
from ....ports.values import frozen

# What Java's trim() takes away.
_BLANKS = "".join(map(chr, range(0x21)))
_QUOTES = "\"'"
# The parts of an expression that matter here: escapes and character classes as a whole, and counts cut in two.
_PARTS = re.compile(
    r"\\. | \[\^?\]?(?P<members>(?:\\.|[^\]\\])*+)\\?(?:\]|\Z) | (?P<counted>\{\d*\|\d*\})", re.DOTALL | re.VERBOSE
)
_FLAGS = re.compile(r"(?:\(\?[a-zA-Z]+\))+")
"""Flags for the whole expression, which may only stand where it begins."""
_ESCAPE = re.compile(r"\\.", re.DOTALL)
_SET_OPERATION = re.compile(r"\[|&&|--|~~|\|\|")


def _normalized(text: str) -> str:
    """Trimmed, commas as "or", without spaces and without quotes around it."""
    return text.strip(_BLANKS).replace(",", "|").replace(" ", "").strip(_QUOTES)


def _compiled(text: str) -> re.Pattern[str]:
    for part in _PARTS.finditer(text):
        if part["counted"]:
            raise ConfigError(f"topic filter {text[:200]!r} cannot be used: a comma means 'or', also in {{1,3}}")
        if part["members"] and _SET_OPERATION.search(_ESCAPE.sub("_", part["members"])):
            raise ConfigError(f"topic filter {text[:200]!r} cannot be used: {part[0][:50]!r} has a set within a set")
    try:
        return re.compile(text, re.ASCII)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(f"topic filter {text[:200]!r} is not a regular expression: {error}") from error


@frozen
class TopicFilter:
    """The topics that a consumer wants. `text` is the expression as the registries hold it.

    Raises `ConfigError` for an expression that does not compile.
    """

    text: str = field(converter=_normalized)
    white: bool = field(kw_only=True)
    """True: the topics that match; False: all others."""
    _pattern: re.Pattern[str] = field(
        init=False, eq=False, repr=False, default=Factory(lambda made: _compiled(made.text), takes_self=True)
    )

    @classmethod
    def whitelist(cls, text: str) -> "TopicFilter":
        """Return a filter of the topics whose whole names match the expression."""
        return cls(text, white=True)

    @classmethod
    def blacklist(cls, text: str) -> "TopicFilter":
        """Return a filter of all other topics."""
        return cls(text, white=False)

    def allows(self, topic: str) -> bool:
        """Return True if the filter has this topic: its expression must match the whole name."""
        return (self._pattern.fullmatch(topic) is not None) == self.white

    @property
    def pattern(self) -> re.Pattern[str]:
        """The filter as one expression, that the whole name of a topic matches."""
        if self.white:
            return self._pattern
        flags = _FLAGS.match(self.text)
        start = 0 if flags is None else flags.end()
        return re.compile(rf"{self.text[:start]}(?!(?:{self.text[start:]})\Z).*", re.ASCII)
