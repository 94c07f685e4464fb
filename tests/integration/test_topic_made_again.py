"""A topic that is deleted and made again under its name is another one: its readers miss nothing of it."""

from collections.abc import Callable, Iterator

import pytest
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Broker, Consumer, Producer
from barnabas.core.client.errors import AbortNeeded, CommitFailed, NoOffset
from barnabas.core.client.group.events import Assigned, CommittedOffset
from barnabas.ports.errors import ApiError
from barnabas.ports.types import TopicPartition

OLD = [b"old-%d" % number for number in range(5)]
TP = TopicPartition("t", 0)


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
    return [message.value for _, message in zip(range(count), consumer.messages(timeout=PATIENCE_S), strict=False)]


@pytest.mark.parametrize("begin", [assigned, subscribed])
@pytest.mark.parametrize("count", [2, 5, 9], ids=["shorter", "as long", "longer"])
def test_recreated_topic_is_read_from_its_beginning(
    bootstrap: str, begin: Callable[[Consumer], None], count: int
) -> None:
    new = [b"new-%d" % number for number in range(count)]
    made(bootstrap, OLD)
    with Consumer(bootstrap, group_id="g", auto_offset_reset="earliest", fetch_max_wait_ms=50) as consumer:
        begin(consumer)
        assert read(consumer, len(OLD)) == OLD
        made(bootstrap, new)
        assert read(consumer, count) == new
        assert consumer.position(TP) == count
        consumer.commit()
        committed = consumer.committed([TP])[TP]
        assert committed is not None
        assert committed.offset == count


def test_member_that_gives_up_the_old_topic_commits_nothing_into_the_new_one(bootstrap: str) -> None:
    """It has noticed the deletion, and commits only when its user comes back: by then there is another topic."""
    new = [b"new-%d" % number for number in range(9)]
    made(bootstrap, OLD)
    with Consumer(bootstrap, group_id="g", auto_offset_reset="earliest", fetch_max_wait_ms=50) as consumer:
        subscribed(consumer)
        assert read(consumer, len(OLD)) == OLD
        with Admin(bootstrap) as admin:
            admin.delete_topics(["t"])
        group = consumer._group
        assert group is not None
        wait_for(lambda: group.wanted)
        made(bootstrap, new)
        assert read(consumer, len(new)) == new


def test_member_that_gets_a_partition_back_does_not_take_its_old_position_for_one_of_the_new_topic(
    bootstrap: str,
) -> None:
    """The commit came when the topic had been made again, and nothing that the member knew said so."""
    new = [b"new-%d" % number for number in range(9)]
    made(bootstrap, OLD)
    with Consumer(bootstrap, group_id="g", auto_offset_reset="earliest", fetch_max_wait_ms=50) as consumer:
        subscribed(consumer)
        assert read(consumer, len(OLD)) == OLD
        group = consumer._group
        assert group is not None
        old_id = consumer.topic_id(TP)
        made(bootstrap, new)
        wait_for(lambda: (view := consumer._shell.view.topic("t")) is not None and view.topic_id != old_id)
        with consumer._lock:
            group._forget([TP])
        group._carry_out(Assigned(positions={TP: CommittedOffset(len(OLD))}, generation_id=1))
        assert read(consumer, len(new)) == new


def test_messages_fetched_from_the_old_topic_come_first(bootstrap: str) -> None:
    made(bootstrap, OLD)
    with Consumer(bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=50) as consumer:
        consumer.assign("t", position="earliest")
        first = consumer.poll(PATIENCE_S)
        made(bootstrap, [b"new"])
        assert first is not None
        assert [first.value, *read(consumer, 5)] == [*OLD, b"new"]


def test_topic_that_could_not_be_assigned_again_is_read_once_it_is_made_again(bootstrap: str) -> None:
    """A failed `assign` changes nothing: the consumer still reads what was assigned before."""
    made(bootstrap, OLD)
    with Consumer(bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=50) as consumer, Admin(bootstrap) as admin:
        admin.create_topic("other", partitions=1)
        consumer.assign(["t", "other"], position="earliest")
        assert read(consumer, len(OLD)) == OLD
        admin.delete_topics(["t"])
        with pytest.raises(ApiError, match="topic t does not exist"):
            wait_for(lambda: consumer.assign(["t"], position="earliest") is None)
        made(bootstrap, [b"new"])
        assert read(consumer, 1) == [b"new"]


def test_topic_is_assigned_although_metadata_from_before_it_was_made_lack_it(bootstrap: str) -> None:
    made(bootstrap, OLD)
    with Consumer(bootstrap, fetch_max_wait_ms=50) as consumer, Admin(bootstrap) as admin:
        assigned(consumer)
        view = consumer._shell.view
        admin.delete_topics(["t"])
        wait_for(lambda: "t" in view.topic_errors)
        with consumer._lock:
            made(bootstrap, [b"new"])
        assigned(consumer)
        assert read(consumer, 1) == [b"new"]


def test_partitions_that_were_just_added_can_be_assigned(bootstrap: str) -> None:
    made(bootstrap, OLD)
    with Consumer(bootstrap) as consumer, Admin(bootstrap) as admin:
        assigned(consumer)
        admin.create_partitions("t", 3)
        assert consumer.assign([("t", 0), ("t", 2)], position="earliest") == [("t", 0), ("t", 2)]
        with pytest.raises(ApiError, match="t has 3 partitions"):
            consumer.assign([("t", 3)])


@pytest.mark.parametrize("instead", ["another", "nothing"])
def test_metadata_of_topics_that_are_no_longer_assigned_are_not_asked_for(bootstrap: str, instead: str) -> None:
    made(bootstrap, OLD)
    with Consumer(bootstrap) as consumer, Admin(bootstrap) as admin:
        admin.create_topic("other", partitions=1)
        assigned(consumer)
        if instead == "another":
            consumer.assign("other")
        else:
            consumer.unsubscribe()
        assert not consumer._shell.view.wants("t")


def test_without_a_reset_the_reader_is_asked(bootstrap: str) -> None:
    made(bootstrap, OLD)
    with Consumer(bootstrap, auto_offset_reset="none", fetch_max_wait_ms=50) as consumer:
        consumer.assign("t", position="earliest")
        assert read(consumer, len(OLD)) == OLD
        made(bootstrap, [b"new"] * 9)
        with pytest.raises(NoOffset, match="topic t was deleted and made again"):
            consumer.poll(PATIENCE_S)
        consumer.seek(TP, "earliest")
        assert read(consumer, 9) == [b"new"] * 9


@pytest.mark.parametrize("give", ["messages", "all positions"])
def test_position_in_the_old_topic_is_not_added_to_a_transaction(bootstrap: str, give: str) -> None:
    """TxnOffsetCommit has names alone: the coordinator would take it for a position in the new topic."""
    made(bootstrap, OLD)
    with (
        Consumer(
            bootstrap, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False, fetch_max_wait_ms=50
        ) as consumer,
        Producer(bootstrap, transactional_id="x") as producer,
        Admin(bootstrap) as admin,
    ):
        subscribed(consumer)
        messages = [message for _, message in zip(range(len(OLD)), consumer.messages(timeout=PATIENCE_S), strict=False)]
        consumer.pause(TP)  # a fetch would begin with the new topic
        old_id = consumer.topic_id(TP)
        made(bootstrap, [b"new"] * 9)
        consumer._shell.view.request_refresh()
        wait_for(lambda: (view := consumer._shell.view.topic("t")) is not None and view.topic_id != old_id)
        producer.init_transactions()
        producer.begin_transaction()
        what = messages if give == "messages" else consumer
        with pytest.raises(CommitFailed, match="topic t was deleted and made again"):
            producer.send_offsets(what, consumer)
        with pytest.raises(AbortNeeded):
            producer.commit_transaction()
        producer.abort_transaction()
        assert admin.group_offsets("g") == {}
