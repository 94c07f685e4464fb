"""Every short history around a CreateTopics that is answered before its logs exist.

`support/topic_creation_search.py` says what happens in them.

The counts of histories are printed: `pytest -s`, or `-rA`.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import pytest
from support.topic_creation_search import ACTIONS, BrokenPromise, search

from barnabas.app.broker.handlers import topic_creation
from barnabas.app.broker.handlers.topics import TopicService
from barnabas.app.broker.state.broker_state import BrokerState
from barnabas.core.cluster.deltas import TopicSet
from barnabas.core.cluster.registry import ClusterRegistry
from barnabas.core.cluster.topics import Topic
from barnabas.core.log.manager.log_manager import LogManager
from barnabas.ports.scheduler import Outcome


@pytest.fixture
def _two_topics_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is answered before the logs of its topics exist."""
    monkeypatch.setattr(topic_creation, "TOPICS_AT_A_TIME", 1)


@pytest.fixture
def _each_topic_has_its_own_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_creation, "CHANGES_MAX", 1)


@pytest.mark.usefixtures("_two_topics_are_many")
@pytest.mark.parametrize("shared", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_one_action_at_any_step_after_an_early_answer_breaks_no_promise(shared: bool) -> None:
    print(f"{search(1, shared=shared)} histories of one action")


@pytest.mark.slow
@pytest.mark.usefixtures("_two_topics_are_many", "_each_topic_has_its_own_commit")
@pytest.mark.parametrize("shared", [False, True])
def test_one_action_while_two_commits_are_made_side_by_side_breaks_no_promise(shared: bool) -> None:
    print(f"{search(1, shared=shared)} histories of one action")


@pytest.mark.usefixtures("_two_topics_are_many")
@pytest.mark.slow
@pytest.mark.parametrize(("shared", "names"), [(False, ACTIONS), (True, ("delete", "create", "kill"))])
def test_two_actions_at_any_steps_after_an_early_answer_break_no_promise(shared: bool, names: Sequence[str]) -> None:
    print(f"{search(2, shared=shared, names=names)} histories of two actions")


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True])
def test_message_acknowledged_before_a_disk_fails_is_read_if_the_answer_waits_for_the_logs(shared: bool) -> None:
    print(f"{search(2, shared=shared, names=('fail', 'produce'))} histories of two actions")


@pytest.mark.slow
def test_search_finds_topics_that_are_taken_back_with_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopicService, "_may_be_open", lambda *_: False)
    with pytest.raises(BrokenPromise):
        search(2, shared=False, names=("fail", "produce"))


def creates_no_logs(patch: pytest.MonkeyPatch) -> None:
    async def open_stored(self: TopicService, topics: Sequence[Topic]) -> None:
        self._state.end_awaiting_logs(topics)

    patch.setattr(TopicService, "open_stored", open_stored)


def creates_the_log_of_one_partition(patch: pytest.MonkeyPatch) -> None:
    assigned = BrokerState._assigned
    patch.setattr(BrokerState, "_assigned", lambda self, topic: assigned(self, topic)[:1])


def leaves_the_logs_of_deleted_topics(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogManager, "delete", lambda *_: None)


def answers_before_the_tree_has_the_topics(patch: pytest.MonkeyPatch) -> None:
    async def create_all(
        self: ClusterRegistry, groups: Sequence[Sequence[tuple[Topic, Any]]]
    ) -> Sequence[Outcome[bool]]:
        for topic, _ in chain.from_iterable(groups):
            self.apply(TopicSet(topic=topic, states={}))
        return [Outcome(value=True) for _ in groups]

    patch.setattr(ClusterRegistry, "create_all", create_all)


@pytest.mark.usefixtures("_two_topics_are_many")
@pytest.mark.parametrize(
    "mutate",
    [
        creates_no_logs,
        creates_the_log_of_one_partition,
        leaves_the_logs_of_deleted_topics,
        answers_before_the_tree_has_the_topics,
    ],
)
def test_search_of_topic_creation_finds_a_broken_promise_after_each_mutation(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    with pytest.raises(BrokenPromise):
        search(1, shared=False)
