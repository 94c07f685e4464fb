"""Regular expressions of subscriptions, resolved by the coordinator."""

from collections.abc import Callable
from typing import Any

import pytest
from support.group_harness import ID, OTHER_ID, Harness

from barnabas.core.coordinator.group.consumer_records import ConsumerRecord, encode_key
from barnabas.core.coordinator.group.expressions import TopicExpressions
from barnabas.core.traffic.steps import complete
from barnabas.ports.broker_api.consumer_groups import ConsumerGroupHeartbeatResult
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.ports.errors import ApiError
from barnabas.ports.scheduler import Outcome

SECOND_MS, MINUTE_MS = 1_000, 60_000
THIRD_ID = b"3" * 16


class LateSteps:
    """Searches take turns with other work, until `finish`."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Any, Callable[[Outcome[Any]], None]]] = []

    def run(self, steps: Any, done: Callable[[Outcome[Any]], None], _owner: object = None) -> None:
        if steps.__name__ == "resolve":
            self.waiting.append((steps, done))
        else:
            done(Outcome.of(lambda: complete(steps)))

    def finish(self) -> None:
        steps, done = self.waiting.pop(0)
        done(Outcome.of(lambda: complete(steps)))


def make_harness(steps: Any = None) -> Harness:
    harness = Harness(steps=steps)
    harness.topics = {"t1": 2, "t2": 1, "u": 1}
    harness.topic_ids = {"t1": ID, "t2": OTHER_ID, "u": THIRD_ID}
    return harness


@pytest.fixture
def harness() -> Harness:
    return make_harness()


def beat(harness: Harness, member: str, epoch: int = 0, **given: Any) -> ConsumerGroupHeartbeatResult:
    if epoch == 0:
        given.setdefault("topics", [])
    result = harness.beat(member, epoch, **given).result
    assert isinstance(result, ConsumerGroupHeartbeatResult)
    assert result.error is E.NONE, result
    return result


def assigned(result: ConsumerGroupHeartbeatResult) -> dict[bytes, list[int]] | None:
    return None if result.assignment is None else {each.topic_id: list(each.partitions) for each in result.assignment}


def stored_topics(harness: Harness, expression: str) -> bytes | None:
    """Return the value of the last record of the expression; None: a tombstone, or no record."""
    key = encode_key(ConsumerRecord.REGULAR_EXPRESSION, "g", expression)
    values = [entry[1] for entries in harness.log.values() for entry in entries if entry[0] == key]
    return values[-1] if values else None


def test_first_answer_has_the_partitions_of_matching_topics(harness: Harness) -> None:
    result = beat(harness, "a", subscribed_topic_regex="t.")
    assert (result.member_epoch, assigned(result)) == (2, {ID: [0, 1], OTHER_ID: [0]})


def test_expression_matches_whole_names_only(harness: Harness) -> None:
    assert assigned(beat(harness, "a", subscribed_topic_regex="t")) == {}


def test_names_and_expression_together_are_one_subscription(harness: Harness) -> None:
    result = beat(harness, "a", topics=["u"], subscribed_topic_regex="t2")
    assert assigned(result) == {OTHER_ID: [0], THIRD_ID: [0]}


def test_topics_that_the_member_may_not_describe_are_left_out(harness: Harness) -> None:
    harness.hidden = {"t2"}
    assert assigned(beat(harness, "a", subscribed_topic_regex=".*")) == {ID: [0, 1], THIRD_ID: [0]}


def test_long_search_ends_after_the_heartbeat_and_the_next_one_has_its_result() -> None:
    steps = LateSteps()
    harness = make_harness(steps)
    first = beat(harness, "a", subscribed_topic_regex="t.")
    assert (first.member_epoch, assigned(first)) == (1, {})
    for _ in range(3):
        beat(harness, "a", 1)
    assert len(steps.waiting) == 1, "one search at a time"
    steps.finish()
    assert harness.describe_consumers().group_epoch == 2
    result = beat(harness, "a", 1)
    assert (result.member_epoch, assigned(result)) == (2, {ID: [0, 1], OTHER_ID: [0]})


def test_search_that_ends_after_its_member_has_left_changes_nothing() -> None:
    steps = LateSteps()
    harness = make_harness(steps)
    beat(harness, "a", subscribed_topic_regex="t.")
    beat(harness, "b", topics=["u"])
    beat(harness, "a", -1)
    epoch = harness.describe_consumers().group_epoch
    steps.finish()
    assert harness.describe_consumers().group_epoch == epoch
    assert stored_topics(harness, "t.") is None


def test_search_whose_group_was_deleted_meanwhile_changes_nothing() -> None:
    steps = LateSteps()
    harness = make_harness(steps)
    beat(harness, "a", subscribed_topic_regex="t.")
    beat(harness, "a", -1)
    harness.delete("g")
    steps.finish()
    assert stored_topics(harness, "t.") is None


def test_new_topic_is_assigned_ten_seconds_after_the_last_search(harness: Harness) -> None:
    beat(harness, "a", subscribed_topic_regex="t.")
    harness.topics["t3"] = 1
    harness.topic_ids["t3"] = b"4" * 16
    harness.pass_time(9 * SECOND_MS)
    assert beat(harness, "a", 2).member_epoch == 2
    harness.pass_time(SECOND_MS)
    result = beat(harness, "a", 2)
    assert result.member_epoch == 3
    assert assigned(result) == {ID: [0, 1], OTHER_ID: [0], b"4" * 16: [0]}


def test_member_that_joins_gets_a_topic_that_is_newer_than_the_last_search(harness: Harness) -> None:
    """A static member may return at once, and leave again before ten seconds have passed."""
    beat(harness, "a", instance_id="i", subscribed_topic_regex="t.")
    harness.topics["t3"] = 1
    harness.topic_ids["t3"] = b"4" * 16
    beat(harness, "a", -2, instance_id="i")
    harness.pass_time(2 * SECOND_MS)
    result = beat(harness, "b", instance_id="i", subscribed_topic_regex="t.")
    assert assigned(result) == {ID: [0, 1], OTHER_ID: [0], b"4" * 16: [0]}


def test_topic_that_is_deleted_leaves_the_assignment(harness: Harness) -> None:
    beat(harness, "a", subscribed_topic_regex="t.")
    del harness.topics["t2"]
    harness.pass_time(10 * SECOND_MS)
    result = beat(harness, "a", 2)
    assert (result.member_epoch, assigned(result)) == (2, {ID: [0, 1]})
    assert beat(harness, "a", 2, owned={ID: [0, 1]}).member_epoch >= 3


def test_rights_that_change_count_after_the_refresh_interval(harness: Harness) -> None:
    harness.hidden = {"t2"}
    beat(harness, "a", subscribed_topic_regex="t.")
    harness.hidden = set()
    for _ in range(19):
        harness.pass_time(30 * SECOND_MS)
        assert beat(harness, "a", 2).member_epoch == 2
    harness.pass_time(30 * SECOND_MS)
    assert assigned(beat(harness, "a", 2)) == {ID: [0, 1], OTHER_ID: [0]}


def test_another_expression_of_a_member_takes_the_place_of_the_former(harness: Harness) -> None:
    beat(harness, "a", subscribed_topic_regex="t.")
    harness.pass_time(SECOND_MS)
    result = beat(harness, "a", 2, subscribed_topic_regex="u", owned={ID: [0, 1], OTHER_ID: [0]})
    assert assigned(result) == {}
    result = beat(harness, "a", 2, owned={})
    assert (result.member_epoch, assigned(result)) == (3, {THIRD_ID: [0]})
    assert stored_topics(harness, "t.") is None
    assert stored_topics(harness, "u") is not None


def test_empty_expression_ends_the_subscription(harness: Harness) -> None:
    beat(harness, "a", subscribed_topic_regex="t.")
    harness.pass_time(SECOND_MS)
    assert assigned(beat(harness, "a", 2, subscribed_topic_regex="")) == {}
    assert harness.describe_consumers().members[0].subscribed_topic_regex is None


def test_restarted_coordinator_knows_the_topics_of_expressions(harness: Harness) -> None:
    beat(harness, "a", subscribed_topic_regex="t.")
    other = harness.restarted()
    other.topics, other.topic_ids = harness.topics, harness.topic_ids
    result = beat(other, "a", 2)
    assert (result.member_epoch, assigned(result)) == (2, {ID: [0, 1], OTHER_ID: [0]})
    assert other.describe_consumers().group_epoch == 2


def test_static_member_that_returns_with_topic_names_alone_has_no_expression_any_longer(harness: Harness) -> None:
    beat(harness, "a", topics=[], subscribed_topic_regex=".*", instance_id="i")
    harness.beat("a", -2, instance_id="i")
    assert assigned(beat(harness, "b", topics=["u"], instance_id="i")) == {THIRD_ID: [0]}
    (member,) = harness.describe_consumers().members
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["u"], None)


def test_expression_of_a_static_member_stays_when_it_returns_with_another_id(harness: Harness) -> None:
    beat(harness, "a", subscribed_topic_regex="t.", instance_id="i")
    beat(harness, "a", -2, instance_id="i")
    result = beat(harness, "b", subscribed_topic_regex="t.", instance_id="i")
    assert (result.member_epoch, assigned(result)) == (2, {ID: [0, 1], OTHER_ID: [0]})


def test_deleted_group_leaves_no_records_of_expressions(harness: Harness) -> None:
    beat(harness, "a", subscribed_topic_regex="t.")
    beat(harness, "a", -1)
    assert harness.delete("g") == [E.NONE]
    assert stored_topics(harness, "t.") is None
    assert not harness.restarted().listed()


def test_expression_of_a_refused_member_is_forgotten() -> None:
    harness = make_harness()
    beat(harness, "a", topics=["u"], instance_id="i")
    assert harness.beat("b", topics=[], subscribed_topic_regex="t.", instance_id="i").error is E.UNRELEASED_INSTANCE_ID
    assert stored_topics(harness, "t.") is None


@pytest.mark.parametrize("text", ["t(?=x)", r"(t)\1", "t++", "(", "[", "x" * 1001])
def test_expression_that_is_none_is_refused(harness: Harness, text: str) -> None:
    assert harness.beat("a", topics=[], subscribed_topic_regex=text).error is E.INVALID_REGULAR_EXPRESSION
    assert not harness.listed()


def test_only_new_names_are_compared() -> None:
    expressions = TopicExpressions()
    compared: list[int] = []

    def resolve(*names: str) -> frozenset[str]:
        steps = expressions.resolve(["t.*"], frozenset(names), lambda each: each)
        compared.append(0)
        while True:
            try:
                next(steps)
                compared[-1] += 1
            except StopIteration as end:
                found: frozenset[str] = end.value["t.*"]
                return found

    assert resolve("t1", "u") == {"t1"}
    assert resolve("t1", "u", "t2") == {"t1", "t2"}
    assert resolve("t2", "u") == {"t2"}
    assert compared == [2, 1, 0]


def test_expressions_beyond_the_limit_are_compiled_once_more() -> None:
    expressions = TopicExpressions()
    for number in range(1100):
        expressions.check(f"t{number}")
    assert complete(expressions.resolve(["t1"], frozenset({"t1"}), lambda each: each)) == {"t1": {"t1"}}
    with pytest.raises(ApiError):
        expressions.check("(")
