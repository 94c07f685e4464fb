"""The topics of a member, and those of the whole group, which its leader watches."""

import re
from collections.abc import Collection, Iterable

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ..cluster_view import ClusterView
from ..errors import topic_error

_RE2_TOKEN = r"""
    [A-Za-z0-9_~!@%&=:;"'<>,/#\ -]     # a character that means itself
    | [.^$|]
    | \\[dDwWsSbB.^$*+?()\[\]{}|\\/_-] # a class, or an escaped character
    | \[\^?\]?(?: [^\[\]\\] | \\[dDwWsS.^$*+?()\[\]{}|\\/_-] )*\]
    | \((?: \?: | \?P<[A-Za-z_][A-Za-z0-9_]*> | (?!\?) )
    | \)
    | (?: [*+?] | \{[0-9]{1,3}(?:,(?:[0-9]{1,3})?)?\} )\??(?![*+?{])
"""
_RE2 = re.compile(f"(?:{_RE2_TOKEN})*", re.VERBOSE)
"""The patterns that mean the same to RE2, which brokers use, as to Python; a cautious choice of them."""
_SAME_FLAGS = re.UNICODE | re.ASCII | re.IGNORECASE
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")


def broker_regex(pattern: re.Pattern[str]) -> str | None:
    """Return the pattern for a broker (KIP-848), which expects RE2; None if the two might disagree.

    RE2 has no look-around and no back-references, for example.
    """
    if pattern.flags & ~_SAME_FLAGS or _RE2.fullmatch(pattern.pattern) is None:
        return None
    return f"(?i){pattern.pattern}" if pattern.flags & re.IGNORECASE else pattern.pattern


class SubscribedTopics:
    """The user's subscription: topics by name, or those that match a pattern."""

    def __init__(self, view: ClusterView, *, exclude_internal: bool) -> None:
        self._view = view
        self._exclude_internal = exclude_internal
        self._pattern: re.Pattern[str] | None = None
        self.regex: str | None = None
        """The pattern as the group's coordinator matches it; None where this consumer does it."""
        self.names: frozenset[str] = frozenset()
        """The topics subscribed to; of a pattern those that are known to match it."""
        self.active = False
        self._reported: dict[str, ErrorCode] = {}

    def by_name(self, topics: Collection[str]) -> bool:
        """Subscribe to these; return True if that is a change."""
        self._pattern = self.regex = None
        self._view.need_all_topics(False)
        changed = self._set(frozenset(topics)) or not self.active
        self.active = True
        self._view.add_topics(sorted(self.names))
        return changed

    def by_pattern(self, pattern: re.Pattern[str], regex: str | None = None) -> bool:
        """Subscribe to all that match; return True if that is a change of what is known so far.

        With a `regex` the coordinator finds them, unless it would find internal topics that the user excludes.
        """
        was_active, self.active = self.active, True
        self._pattern = pattern
        if self._exclude_internal and any(map(pattern.fullmatch, _INTERNAL)):
            regex = None
        if regex is not None:
            changed, self.regex = self.regex != regex, regex
            self._view.need_all_topics(False)
            if changed:
                self._set(frozenset())
            return changed or not was_active
        self.regex = None
        self._view.need_all_topics()
        return self.update_matches() or not was_active

    def match_locally(self) -> None:
        """Find the topics of a pattern here, because the coordinator cannot."""
        if self.regex is not None:
            self.regex = None
            self._view.need_all_topics()
            self.update_matches()

    def on_assigned_topics(self, names: Iterable[str]) -> None:
        """Take the topics of the assignment for those of the pattern that the coordinator matches."""
        if self.regex is not None:
            self._set(frozenset(names))
            self._view.add_topics(sorted(self.names))

    def clear(self) -> None:
        self._pattern = self.regex = None
        self._view.need_all_topics(False)
        self._set(frozenset())
        self.active = False

    @property
    def ready(self) -> bool:
        """False until the topics that match the pattern are known."""
        return self._pattern is None or self.regex is not None or self._view.all_topics is not None

    def update_matches(self) -> bool:
        """Take new metadata; return True if other topics match now."""
        topics = self._view.all_topics
        if self._pattern is None or self.regex is not None or topics is None:
            return False
        return self._set(
            frozenset(
                name
                for name, internal in topics.items()
                if self._pattern.fullmatch(name) and not (internal and self._exclude_internal)
            )
        )

    def take_refusal(self) -> ApiError | None:
        """Return the error of a topic that cannot be read, if there is a new one; each is returned once."""
        for name in self.names:
            error = self._view.topic_errors.get(name)
            if error is None:
                self._reported.pop(name, None)
            elif not error.retriable and self._reported.get(name) is not error:
                self._reported[name] = error
                return topic_error(error, name)
        return None

    def _set(self, names: frozenset[str]) -> bool:
        old, self.names = self.names, names
        for name in old - names:
            self._view.forget(name)
            self._reported.pop(name, None)
        return old != names


class GroupTopics:
    """The leader's view of its group's topics: the basis of an assignment, whose change requires another one."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._topics: frozenset[str] = frozenset()
        self._counts: dict[str, int] | None = None

    def watch_topics(self, topics: Iterable[str]) -> None:
        """Watch the topics of a new generation that this member leads, its own among them."""
        old, self._topics = self._topics, frozenset(topics)
        self._counts = None
        for name in old - self._topics:
            self._view.forget(name)
        self._view.add_topics(sorted(self._topics))

    def unwatch_topics(self, own: frozenset[str]) -> None:
        """Watch no topics, because this member does not lead; the view keeps the `own` ones."""
        for name in self._topics - own:
            self._view.forget(name)
        self._topics = frozenset()
        self._counts = None

    @property
    def ready(self) -> bool:
        """True once the metadata of every topic is known: its partitions, or that it does not exist now."""
        view = self._view
        return all(view.topic(name) is not None or name in view.topic_errors for name in self._topics)

    def counts(self) -> dict[str, int]:
        """Return topic → number of partitions, to which `changed` compares from now on."""
        self._counts = self._now()
        return self._counts

    def changed(self) -> str | None:
        """Return a topic whose partition count differs from the one of the last `counts`, if there is one."""
        if self._counts is None:
            return None
        now = self._now()
        return next((name for name in sorted(self._topics) if now.get(name) != self._counts.get(name)), None)

    def _now(self) -> dict[str, int]:
        views = {name: self._view.topic(name) for name in self._topics}
        return {name: len(view.leaders) for name, view in views.items() if view is not None}
