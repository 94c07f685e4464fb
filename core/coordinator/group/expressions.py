"""Regular expressions in subscriptions (KIP-848): the names that match are found here, once for all groups.

A group asks when one of its expressions is not resolved yet; when topics have changed, at most every ten seconds or
when a member joins; and after `group.consumer.regex.refresh.interval.ms`, since rights to describe topics may have
changed.
What has been compared stays: after a change of topics only new names are compared.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import inf

from ....ports.values import define
from ...traffic.steps import Steps

REFRESH_AFTER_CHANGE_MS = 10_000
"""The least time between two resolutions of a group's expressions (Kafka: REGEX_BATCH_REFRESH_MIN_INTERVAL_MS)."""
_COMPILED_MAX = 1000
_NO_TOPICS: frozenset[str] = frozenset()


@define
class ResolvedExpression:
    """The topics of an expression, as its record has them (Kafka's `ResolvedRegularExpression`)."""

    topics: frozenset[str]
    version: int = 0
    """The version of the metadata by which the topics were found."""
    timestamp_ms: int = 0
    """The wall-clock time of the resolution."""


class _Compiled:
    def __init__(self, text: str) -> None:
        from ..regular_expression import RegularExpression

        self.expression = RegularExpression(text)
        self.compared: AbstractSet[str] = frozenset()
        self.matching: frozenset[str] = frozenset()


class TopicExpressions:
    """The expressions of all groups, each with the topics that match. The latest 1,000 are remembered. Owner thread
    only."""

    def __init__(self) -> None:
        self._compiled: OrderedDict[str, _Compiled] = OrderedDict()

    def check(self, text: str) -> None:
        """Raises `ApiError` INVALID_REGULAR_EXPRESSION for a text that is no expression."""
        self._get(text)

    def resolve(
        self,
        texts: Iterable[str],
        names: AbstractSet[str],
        describable: Callable[[Collection[str]], Collection[str]],
    ) -> Steps[Mapping[str, frozenset[str]]]:
        """Return the names that each expression matches and the caller may describe."""
        found = {}
        for text in texts:
            compiled = self._get(text)
            if compiled.compared is not names:
                new, before = names - compiled.compared, compiled.matching
                matching = set()
                for name in new:
                    if (yield from compiled.expression.matches(name)):
                        matching.add(name)
                    yield None
                compiled.compared, compiled.matching = names, frozenset(matching | (before & names))
            found[text] = frozenset(describable(compiled.matching))
        return found

    def _get(self, text: str) -> _Compiled:
        compiled = self._compiled.get(text)
        if compiled is None:
            compiled = self._compiled[text] = _Compiled(text)
            if len(self._compiled) > _COMPILED_MAX:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(text)
        return compiled


class GroupExpressions:
    """The expressions of one group's members, and what they stand for."""

    def __init__(self) -> None:
        self.resolved: dict[str, ResolvedExpression] = {}
        self.is_resolving = False
        self._members: Counter[str] = Counter()
        self._version = -1
        self._resolved_ms = -inf

    def topics(self, text: str | None) -> frozenset[str]:
        """Return the topics of an expression; none before it is resolved."""
        resolved = self.resolved.get(text) if text is not None else None
        return _NO_TOPICS if resolved is None else resolved.topics

    def count(self, text: str | None, by: int) -> bool:
        """Count the members of an expression; return True if no member has it any longer, and it was resolved."""
        if text is None:
            return False
        self._members[text] += by
        if self._members[text]:
            return False
        del self._members[text]
        return self.resolved.pop(text, None) is not None

    @property
    def is_any_used(self) -> bool:
        """True if a member has an expression."""
        return bool(self._members)

    def is_used(self, text: str) -> bool:
        """Return True if a member is subscribed by the expression."""
        return text in self._members

    def unused(self) -> Sequence[str]:
        """Return the resolved expressions that no member has."""
        return [text for text in self.resolved if text not in self._members]

    def to_resolve(
        self, asked: str | None, version: int, now_ms: float, refresh_ms: int, *, joins: bool = False
    ) -> Sequence[str]:
        """Return the expressions that must be resolved now. `asked` is that of a member which may be new, `version`
        that of the topics. A member that joins gets the present topics: it may leave again soon."""
        if self.is_resolving or not (asked or self._members):
            return ()
        texts = dict.fromkeys([*self._members, *([asked] if asked else ())])
        age_ms = now_ms - self._resolved_ms
        wait_ms = 0 if joins and asked else REFRESH_AFTER_CHANGE_MS
        is_due = age_ms >= refresh_ms or (version != self._version and age_ms >= wait_ms)
        if not is_due and all(text in self.resolved for text in texts):
            return ()
        return tuple(texts)

    def update(
        self, found: Mapping[str, frozenset[str]], version: int, now_ms: float, wall_ms: int
    ) -> Mapping[str, frozenset[str]]:
        """Take what was found, and return the former topics of those expressions that have others now."""
        self._version, self._resolved_ms = version, now_ms
        changed = {}
        for text, topics in found.items():
            before = self.resolved.get(text)
            if before is None or before.topics != topics:
                changed[text] = _NO_TOPICS if before is None else before.topics
                self.resolved[text] = ResolvedExpression(topics, version, wall_ms)
        return changed
