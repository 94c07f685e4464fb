"""A start finishes deletions, and confirms them in the tree only when the folders are gone for good."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.adapters.coord_memory import MemoryTree
from barnabas.adapters.system import SeededEntropy
from barnabas.app.broker.lifecycle.broker_server import open_topics
from barnabas.app.broker.state.broker_state import BrokerState
from barnabas.core.cluster import topic_store
from barnabas.core.cluster.change_queue import complete
from barnabas.core.cluster.registry import ClusterRegistry
from barnabas.core.cluster.topic_planning import plan_topic
from barnabas.core.cluster.topics import Topic
from barnabas.ports.broker_api.topics import NewTopic


class Start:
    """The start of broker 1 in a tree where the topic t is deleted, and what the tree says at each step."""

    def __init__(self, *, is_removed: bool) -> None:
        self.session = MemoryTree().session()
        registry = ClusterRegistry(self.session, print)
        complete(registry.load())
        new = NewTopic(name="t", assignments={0: [1, 2]})
        topic = plan_topic(
            registry.image,
            new,
            {1: None, 2: None},
            SeededEntropy(1),
            default_partitions=1,
            default_replication_factor=2,
            configs={},
        )
        complete(registry.create(topic))
        complete(registry.begin_delete("t", {1, 2}))
        if is_removed:
            complete(registry.finish_delete(topic))
        self.seen: list[tuple[str, bool]] = []
        """Each step on the disk, and whether the tree still asks this broker to remove the logs of the topic."""
        logs = SimpleNamespace(flush_folder_names=lambda: self._note("flush"))
        state = SimpleNamespace(
            owns_topics=True,
            is_alone=False,
            node_id=1,
            image=registry.image,
            registry=registry,
            logs=logs,
            drop_topic=self._drop,
            reopen_topic=lambda _: None,
            classic=SimpleNamespace(load=lambda: None),
        )
        open_topics(cast(BrokerState, cast(Any, state)), self._deleted())

    def _deleted(self) -> dict[bytes, str]:
        return topic_store.deleted_of(self.session, 1)

    def _note(self, step: str) -> None:
        self.seen.append((step, bool(self._deleted())))

    def _drop(self, _: Topic) -> bool:
        self._note("drop")
        return True


@pytest.mark.parametrize(("is_removed", "steps"), [(False, ["drop", "flush"]), (True, ["flush"])])
def test_deletion_is_confirmed_after_the_folders_are_gone_for_good(is_removed: bool, steps: list[str]) -> None:
    start = Start(is_removed=is_removed)
    assert start.seen == [(step, True) for step in steps]
    assert topic_store.deleted_of(start.session, 1) == {}
    assert topic_store.deleted_of(start.session, 2) != {}
