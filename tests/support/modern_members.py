"""Members of a consumer group by KIP-848, as clients behave, against the coordinator of a `Harness`."""

from collections.abc import Callable
from typing import Any

from attrs import evolve
from support.group_harness import CALLER, Harness

from barnabas.ports.broker_api.consumer_groups import ConsumerGroupHeartbeat, TopicIdPartitions
from barnabas.ports.error_codes import ErrorCode

FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
Places = set[tuple[bytes, int]]


class ModernMember:
    """One client: it owns partitions from the answer that gives them until it has given them up.

    `is_terse`: as librdkafka, it sends no full heartbeat after a lost answer; like all it comes by another connection.
    """

    def __init__(
        self, harness: Harness, member_id: str, topics: list[str], *, is_terse: bool = False, **given: Any
    ) -> None:
        self.harness = harness
        self.member_id = member_id
        self.topics = topics
        self.given = given
        self.epoch = 0
        self.owned: Places = set()
        self.wanted: Places = set()
        """The last assignment; what it owns beyond that, it is giving up."""
        self._is_terse = is_terse
        self._connection = 1
        self._is_complete = True
        """The next heartbeat says everything."""
        self._said: Places | None = None
        self._said_topics: list[str] | None = None

    def ask(self) -> ConsumerGroupHeartbeat:
        """Return the next heartbeat."""
        topics, owned = self.topics, self.owned
        is_full = self._is_complete or self.epoch == 0
        says_topics = is_full or topics != self._said_topics
        says_owned = is_full or owned != self._said
        return ConsumerGroupHeartbeat(
            group_id="g",
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=20_000 if is_full else -1,
            subscribed_topic_names=list(topics) if says_topics else None,
            topic_partitions=by_topic(owned) if says_owned else None,
            **self.given,
        )

    def beat(self, *, is_lost: bool = False, gives_up: bool = True) -> ErrorCode:
        """Send a heartbeat, and take the answer unless it is lost. Unless it is slow, the member first gives up the
        partitions that it lost."""
        if gives_up:
            self.owned &= self.wanted
        request = self.ask()
        caller = evolve(CALLER, connection=self._connection)
        asked = self.harness._ask(self.harness.coordinator.consumer_group_heartbeat, request, caller)
        error = asked.error
        if is_lost:
            self._connection += 1
            self._is_complete = self._is_complete or not self._is_terse
            return error
        if error in FENCED:
            self.fenced()
        elif error is not ErrorCode.NONE:
            self._is_complete = True
        else:
            self._answered(request, asked.result)
        return error

    def coordinator_changed(self, harness: Harness) -> None:
        """Continue with another coordinator. No heartbeat was under way, so the next one is as short as any."""
        self.harness = harness
        self._connection += 1

    def fenced(self) -> None:
        """Give everything up, to join again."""
        self.epoch, self.owned, self.wanted, self._is_complete = 0, set(), set(), True

    def _answered(self, request: ConsumerGroupHeartbeat, result: Any) -> None:
        self._is_complete = False
        self._said_topics = list(request.subscribed_topic_names or self._said_topics or ())
        if request.topic_partitions is not None:
            self._said = places(request.topic_partitions)
        self.epoch = result.member_epoch
        if result.assignment is not None:
            self.wanted = places(result.assignment)
            self.owned |= self.wanted


def by_topic(owned: Places) -> list[TopicIdPartitions]:
    return [
        TopicIdPartitions(topic_id, sorted(number for each, number in owned if each == topic_id))
        for topic_id in sorted({topic_id for topic_id, _ in owned})
    ]


def places(topics: Any) -> Places:
    return {(each.topic_id, number) for each in topics for number in each.partitions}


def run_until_idle(
    harness: Harness, members: list[ModernMember], is_settled: Callable[[], bool], rounds: int = 30
) -> int:
    """Let all members send heartbeats every 1.1 s until that is true; return the number of rounds."""
    for number in range(rounds):
        if is_settled():
            return number
        for member in members:
            member.beat()
        harness.pass_time(1_100)
    assert is_settled(), f"not after {rounds} rounds"
    return rounds
