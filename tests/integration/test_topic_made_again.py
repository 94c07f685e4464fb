"""A topic that is deleted and made again under its name is another one: its readers miss nothing of it."""

from collections.abc import Callable, Iterator

import pytest

from barnabas import Admin, Broker, Consumer, Producer
from barnabas.core.client.errors import NoOffset
from barnabas.ports.words import TopicPartition

OLD = [b"old-%d" % number for number in range(5)]
PLACE = TopicPartition("t", 0)


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with Broker(storage="memory", coordination="memory", group_initial_rebalance_delay_ms=0) as broker:
        yield broker.bootstrap


def made(bootstrap: str, values: list[bytes]) -> None:
    with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        if "t" in admin.list_topics():
            admin.delete_topics(["t"])
        admin.create_topic("t", partitions=1)
        producer.send_many("t", values).result()


def assigned(consumer: Consumer) -> None:
    consumer.assign("t", position="earliest")


def subscribed(consumer: Consumer) -> None:
    consumer.subscribe("t")


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    return [message.value for _, message in zip(range(count), consumer.messages(timeout=20), strict=False)]


@pytest.mark.parametrize("begin", [assigned, subscribed])
@pytest.mark.parametrize("count", [2, 5, 9], ids=["shorter", "as long", "longer"])
def test_it_is_read_from_its_beginning(bootstrap: str, begin: Callable[[Consumer], None], count: int) -> None:
    new = [b"new-%d" % number for number in range(count)]
    made(bootstrap, OLD)
    with Consumer(bootstrap, group_id="g", auto_offset_reset="earliest", fetch_max_wait_ms=50) as consumer:
        begin(consumer)
        assert read(consumer, len(OLD)) == OLD
        made(bootstrap, new)
        assert read(consumer, count) == new
        assert consumer.position(PLACE) == count
        consumer.commit()
        committed = consumer.committed([PLACE])[PLACE]
        assert committed is not None
        assert committed.offset == count


def test_what_was_fetched_of_the_old_one_comes_before(bootstrap: str) -> None:
    made(bootstrap, OLD)
    with Consumer(bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=50) as consumer:
        consumer.assign("t", position="earliest")
        first = consumer.poll(20)
        made(bootstrap, [b"new"])
        assert first is not None
        assert [first.value, *read(consumer, 5)] == [*OLD, b"new"]


def test_without_a_reset_the_reader_is_asked(bootstrap: str) -> None:
    made(bootstrap, OLD)
    with Consumer(bootstrap, auto_offset_reset="none", fetch_max_wait_ms=50) as consumer:
        consumer.assign("t", position="earliest")
        assert read(consumer, len(OLD)) == OLD
        made(bootstrap, [b"new"] * 9)
        with pytest.raises(NoOffset, match="topic t was deleted and made again"):
            consumer.poll(20)
        consumer.seek(PLACE, "earliest")
        assert read(consumer, 9) == [b"new"] * 9
