"""Share groups at our broker, from our clients: queues, and their administration."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.share_groups import read_from_the_beginning, start_offsets
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Consumer, Producer, ShareConsumer
from barnabas.app.embedded_broker import Broker
from barnabas.core.cluster.features import SHARE_VERSION
from barnabas.ports.broker_api.features import UpgradeType
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

COUNT = 100


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("shares")) as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(broker.bootstrap) as admin:
        yield admin


def fill(broker: Broker, admin: Admin, topic: str, partitions: int = 1) -> None:
    admin.create_topic(topic, partitions=partitions)
    with Producer(broker.bootstrap) as producer:
        producer.send_many(topic, [b"%d" % number for number in range(COUNT)])
    read_from_the_beginning(broker.bootstrap, topic)


def share_consumer(broker: Broker, group: str, *topics: str, **settings: Any) -> ShareConsumer[Any, Any]:
    consumer: ShareConsumer[Any, Any] = ShareConsumer(broker.bootstrap, group_id=group, **settings)
    consumer.subscribe(topics or [group])
    return consumer


def read(consumer: ShareConsumer[Any, Any], count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        messages = consumer.poll_many(count - len(found), timeout=PATIENCE_S)
        assert messages, f"{len(found)} of {count} messages"
        found += [int(each.value) for each in messages]
    return found


def test_members_share_one_partition_and_each_message_goes_to_one_of_them(broker: Broker, admin: Admin) -> None:
    fill(broker, admin, "queue")
    limited = {"max_poll_records": 10, "share_acquire_mode": "record_limit"}
    with share_consumer(broker, "queue", **limited) as one, share_consumer(broker, "queue") as other:
        first = read(one, 10)
        rest = read(other, COUNT - 10)
        assert sorted(first + rest) == list(range(COUNT))
        one.commit_sync(PATIENCE_S)
        other.commit_sync(PATIENCE_S)
        assert start_offsets(broker.bootstrap, "queue") == {0: COUNT}


def test_member_in_the_process_of_the_broker_reads_without_a_socket(broker: Broker, admin: Admin) -> None:
    fill(broker, admin, "inside")
    with ShareConsumer(broker, group_id="inside") as consumer:
        consumer.subscribe("inside")
        assert read(consumer, COUNT) == list(range(COUNT))
        consumer.commit_sync(PATIENCE_S)
    assert start_offsets(broker.bootstrap, "inside") == {0: COUNT}


def test_described_share_group_has_members_epochs_and_lag(broker: Broker, admin: Admin) -> None:
    fill(broker, admin, "described")
    with share_consumer(broker, "described") as consumer:
        read(consumer, COUNT)
        consumer.commit_sync(PATIENCE_S)
        (group,) = admin.describe_share_groups(["described"])
        assert (group.state, group.type, len(group.members)) == ("Stable", "share", 1)
        assert [str(each) for each in group.members[0].assignment] == ["described-0"]
        assert ("described", "share") in {(each.group_id, each.group_type) for each in admin.list_groups()}
        assert admin.list_groups(types=["consumer"]) == []
        (offset,) = admin.share_group_offsets("described").values()
        assert (offset.offset, offset.lag) == (COUNT, 0)
        with pytest.raises(ApiError) as caught:
            admin.delete_groups(["described"])
        assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
    wait_for(lambda: admin.describe_share_groups(["described"])[0].state == "Empty")


def test_altered_offsets_are_read_from_and_deleted_ones_from_the_beginning(broker: Broker, admin: Admin) -> None:
    fill(broker, admin, "altered")
    with share_consumer(broker, "altered") as consumer:
        read(consumer, COUNT)
    admin.alter_share_group_offsets("altered", {("altered", 0): COUNT - 3})
    assert admin.share_group_offsets("altered").popitem()[1].lag == 3
    with share_consumer(broker, "altered") as consumer:
        assert read(consumer, 3) == [COUNT - 3, COUNT - 2, COUNT - 1]
    admin.delete_share_group_offsets("altered", ["altered"])
    with share_consumer(broker, "altered") as consumer:
        assert read(consumer, 1) == [0]


def test_deleted_share_group_begins_again(broker: Broker, admin: Admin) -> None:
    fill(broker, admin, "deleted")
    with share_consumer(broker, "deleted") as consumer:
        read(consumer, COUNT)
    admin.delete_groups(["deleted"])
    assert "deleted" not in {each.group_id for each in admin.list_groups()}
    with share_consumer(broker, "deleted") as consumer:
        assert read(consumer, 1) == [0]


def test_partitions_that_are_added_are_read_from_their_first_message(broker: Broker, admin: Admin) -> None:
    admin.create_topic("grown", partitions=1)
    with share_consumer(broker, "grown") as consumer, Producer(broker.bootstrap) as producer:
        wait_for(lambda: consumer.poll_many(1, timeout=0.1) == [] and len(consumer.assignment) == 1)
        admin.create_partitions("grown", 2)
        producer.send("grown", b"7", partition=1)
        assert read(consumer, 1) == [7]


def test_a_topic_that_is_created_later_is_read(broker: Broker, admin: Admin) -> None:
    read_from_the_beginning(broker.bootstrap, "later")
    with share_consumer(broker, "later") as consumer:
        assert consumer.poll_many(1, timeout=0.2) == []
        fill(broker, admin, "later")
        assert read(consumer, 1) == [0]


def test_a_name_belongs_to_one_type_of_group(broker: Broker, admin: Admin) -> None:
    fill(broker, admin, "typed")
    with share_consumer(broker, "typed") as consumer:
        read(consumer, COUNT)
    with Consumer(broker.bootstrap, group_id="typed") as other, pytest.raises(ApiError) as caught:
        other.subscribe(["typed"])
        other.poll(timeout=PATIENCE_S)
    assert caught.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_share_groups_survive_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("restarted")
    with Broker(folder) as broker, Admin(broker.bootstrap) as admin:
        fill(broker, admin, "kept")
        with share_consumer(broker, "kept") as consumer:
            read(consumer, 10)
    with Broker(folder) as broker, share_consumer(broker, "kept") as consumer:
        assert sorted(read(consumer, COUNT - 10)) == list(range(10, COUNT))


def test_share_groups_are_refused_below_their_version(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Broker(tmp_path_factory.mktemp("old")) as broker, Admin(broker.bootstrap) as admin:
        admin.update_features({SHARE_VERSION: 0}, UpgradeType.SAFE_DOWNGRADE)
        fill(broker, admin, "refused")
        with share_consumer(broker, "refused") as consumer, pytest.raises(ApiError) as caught:
            consumer.poll_many(1, timeout=PATIENCE_S)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
