"""Groups whose topic is deleted and made again under them; `make sim STORY=recreate` plays more of them."""

from collections.abc import Callable

import pytest
from simulation.cluster_checker import Broken
from simulation.cluster_mutations import Mutation
from simulation.recreate_story import Lives, RecreateStory

from barnabas.app.broker.handlers.topics import TopicService
from barnabas.core.client.consumer.fetcher import Fetcher
from barnabas.core.cluster.topics import Topic
from barnabas.core.coordinator.group.loading import Loading
from barnabas.core.coordinator.group.positions import Positions
from barnabas.core.coordinator.group.records import StoredOffset


def test_recreate_story_holds_for_seed(seed: int) -> None:
    RecreateStory(seed).play()


def applies_offsets_of_deleted_topics(patch: pytest.MonkeyPatch) -> None:
    """A coordinator goes by the name of a topic alone."""
    patch.setattr(StoredOffset, "is_of", lambda *_: True)
    patch.setattr(Positions, "forget_partitions", lambda *_, **__: None)
    patch.setattr(Loading, "topics_unlike", lambda *_: [])


def reads_on_in_another_topic_of_the_name(patch: pytest.MonkeyPatch) -> None:
    """A consumer goes by the name of a topic alone."""
    patch.setattr(Fetcher, "_is_another", lambda *_: False)


@pytest.mark.slow
@pytest.mark.parametrize("make", [applies_offsets_of_deleted_topics, reads_on_in_another_topic_of_the_name])
def test_the_story_finds(make: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    says = frozenset({"group", "names", "liveness"})
    Mutation(make, says, ("kill", "restart"), story=RecreateStory).find(monkeypatch)


def deletes_the_topic_that_has_the_name_now(patch: pytest.MonkeyPatch) -> None:
    """A late deletion by an id goes by the name that the topic had."""
    remove = TopicService._remove

    async def by_name(self: TopicService, name: str, _topic_id: bytes | None = None) -> Topic:
        return await remove(self, name)

    patch.setattr(TopicService, "_remove", by_name)


@pytest.mark.slow
def test_the_story_finds_a_topic_that_is_deleted_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    Mutation(deletes_the_topic_that_has_the_name_now, frozenset({"names"}), story=RecreateStory).find(monkeypatch)


def test_message_of_an_earlier_topic_after_one_of_a_later_topic_is_found() -> None:
    lives = Lives(last=2)
    lives.observe("a", 1, 0, 0, b"1 0")
    lives.observe("b", 1, 0, 1, b"1 1")
    lives.observe("a", 1, 0, 0, b"2 0")
    with pytest.raises(Broken, match="names: a is given offset 2"):
        lives.observe("a", 1, 0, 2, b"1 2")
    with pytest.raises(Broken, match=r"group: b is given offset 2 .* 1 comes next"):
        lives.observe("b", 1, 0, 2, b"2 2")
    with pytest.raises(Broken, match="unexpected"):
        lives.observe("b", 1, 1, 0, b"3 0")
