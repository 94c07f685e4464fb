import pytest

from barnabas.core.cluster.deltas import (
    BrokersChanged,
    ConfigsChanged,
    Delta,
    StatesChanged,
    TopicDeleting,
    TopicGone,
    TopicSet,
    TopicUnreadable,
)
from barnabas.core.cluster.image import ClusterImage, Contents
from barnabas.core.cluster.topics import BrokerRegistration, PartitionState, Topic, first_state
from barnabas.ports.errors import ApiError
from barnabas.ports.types import TopicPartition

MOVED = PartitionState(leader=2, leader_epoch=1, isr=(2,))


def moved(name: str, number: int = 1, *, version: int = 0) -> StatesChanged:
    return StatesChanged(topic=name, topic_id=number.to_bytes(16, "big"), states={0: MOVED}, version=version)


def topic(name: str, number: int = 1) -> Topic:
    return Topic(name=name, topic_id=number.to_bytes(16, "big"), partitions={0: (1, 2), 1: (2, 1)})


def after(*deltas: Delta, image: ClusterImage | None = None) -> ClusterImage:
    image = image or ClusterImage()
    for delta in deltas:
        following = image.after(delta)
        assert following.version == image.version + 1
        image = following
    return image


def test_a_topic_comes_changes_and_goes() -> None:
    made = topic("a.b")
    first = after(TopicSet(topic=made))
    assert first.topics == {"a.b": made}
    assert first.topic_by_id(made.topic_id) is made
    assert first.id_of(TopicPartition("a.b", 1)) == made.topic_id
    assert first.same_in_metrics("a_b") == "a.b"

    second = after(TopicSet(topic=made.with_configs({"retention.ms": "5"})), image=first)
    assert second.topic("a.b").configs == {"retention.ms": "5"}
    assert first.topic("a.b").configs == {}, "who keeps an image reads what it was"

    going = after(TopicDeleting(topic=made), image=second)
    assert going.topics == {} and going.deleting == {"a.b": made}
    assert going.id_of(TopicPartition("a.b", 1)) == made.topic_id
    assert going.same_in_metrics("a_b") == "a.b", "its name is not free yet"
    assert not going.has_id(made.topic_id)

    gone = after(TopicGone(name="a.b"), image=going)
    assert gone.is_empty and gone.deleting == {} and gone.same_in_metrics("a_b") is None
    assert second.topics.keys() == {"a.b"}


def test_states_stay_with_the_id_of_a_topic() -> None:
    made, key = topic("t"), TopicPartition("t", 0)
    image = after(TopicSet(topic=made), moved("t"))
    assert image.state(key) == MOVED
    assert image.state(TopicPartition("t", 1)) == first_state((2, 1))
    configured = after(TopicSet(topic=made.with_configs({"a": "b"})), image=image)
    assert configured.states_of("t") is image.states_of("t")
    assert after(TopicSet(topic=topic("t", 2)), image=image).state(key) == first_state((1, 2))
    late = after(TopicSet(topic=made, states={}, states_versions={0: 0}), image=image)
    assert late.state(key) == MOVED, "what was read before the last change"
    grown = after(TopicSet(topic=made, states={0: first_state((1,)), 1: MOVED}, states_versions={0: 0}), image=image)
    assert grown.state(TopicPartition("t", 1)) == MOVED, "it was left out when the topic did not have it yet"
    reread = after(TopicSet(topic=made, states={1: MOVED}, states_versions={0: 1}), image=image)
    assert (reread.states_version("t"), image.states_version("t"), reread.states_version("u")) == (1, 0, None)
    assert [reread.state(TopicPartition("t", number)) for number in (0, 1)] == [first_state((1, 2)), MOVED]
    with pytest.raises(ApiError):
        after(TopicDeleting(topic=made), image=image).state(key)


def test_a_topic_of_another_id_takes_the_place_of_the_first() -> None:
    image = after(TopicSet(topic=topic("t", 1)), TopicSet(topic=topic("t", 2)))
    assert not image.has_id(topic("t", 1).topic_id)
    assert image.topic_by_id(topic("t", 2).topic_id) == topic("t", 2)


def test_a_name_is_one_thing_at_a_time() -> None:
    image = after(TopicSet(topic=topic("t")), TopicUnreadable(name="t"))
    assert image.topics == {} and image.unreadable == {"t"} and not image.is_empty
    image = after(TopicDeleting(topic=topic("t")), image=image)
    assert image.unreadable == frozenset() and set(image.deleting) == {"t"}
    image = after(TopicSet(topic=topic("t")), image=image)
    assert image.deleting == {} and set(image.topics) == {"t"}


def test_delta_keeps_untouched_objects_identical() -> None:
    image = after(TopicSet(topic=topic("t")), TopicSet(topic=topic("u", 2)))
    led = after(moved("t"), image=image)
    assert led.topics is image.topics and led.brokers is image.brokers
    assert led.states_of("u") is image.states_of("u") and led.states_of("t") is not image.states_of("t")


def test_old_states_and_those_of_another_topic_do_not_count() -> None:
    image = after(TopicSet(topic=topic("t")), moved("t", version=5))
    for late in (moved("t", version=5), moved("t", 2, version=6), moved("u", version=6)):
        assert image.after(late) is image
    assert after(moved("t", version=6), image=image).states_of("t") is image.states_of("t"), "the same once more"


def test_brokers_and_configs() -> None:
    one = BrokerRegistration(broker_id=1, endpoints=("kafka://a:1",))
    image = after(
        BrokersChanged(brokers={1: one}),
        ConfigsChanged(broker_id=None, configs={"a": "1"}),
        ConfigsChanged(broker_id=1, configs={"a": "2"}),
    )
    assert image.brokers == {1: one}
    assert image.configs == {None: {"a": "1"}, 1: {"a": "2"}}
    assert after(BrokersChanged(brokers={}), image=image).brokers == {}


def test_filled_at_once_or_by_deltas() -> None:
    t, u, going = topic("t", 1), topic("u", 2), topic("g.g", 3)
    deltas: list[Delta] = [TopicSet(topic=t), TopicSet(topic=u, states={0: MOVED}), TopicDeleting(topic=going)]
    by_deltas = after(*deltas, TopicUnreadable(name="x"), ConfigsChanged(broker_id=1, configs={"a": "2"}))
    at_once = ClusterImage(version=3).refilled(
        Contents(
            topics={"t": t, "u": u},
            deleting={"g.g": going},
            unreadable=frozenset({"x"}),
            states={"t": ({}, {}), "u": ({0: MOVED}, {})},
            configs={1: {"a": "2"}},
        )
    )
    assert at_once.version == 4
    for image in (by_deltas, at_once):
        assert image.topics == {"t": t, "u": u}
        assert image.deleting == {"g.g": going} and image.unreadable == {"x"}
        assert image.topic_by_id(u.topic_id) is u and not image.has_id(going.topic_id)
        assert image.state(TopicPartition("u", 0)) == MOVED and image.states_of("t") == {}
        assert image.same_in_metrics("g_g") == "g.g"
        assert image.configs == {1: {"a": "2"}}
