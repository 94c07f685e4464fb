"""Transactions and groups while the finalized levels of features change under them."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from support.waiting import PATIENCE_S

from barnabas import Admin, Broker, Consumer, Producer
from barnabas.core.cluster.features import newest_levels
from barnabas.ports.broker_api.features import UpgradeType
from barnabas.ports.errors import BarnabasError

TOPIC = "orders"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The data folder of a cluster that has no level yet, as one of an earlier version."""
    with started(tmp_path) as broker, Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=2)
        lower(admin)
    yield tmp_path


def started(folder: Path) -> Broker:
    return Broker(
        data_dir=folder,
        offsets_topic_num_partitions=1,
        transaction_state_log_num_partitions=1,
        group_initial_rebalance_delay_ms=0,
        group_consumer_min_heartbeat_interval_ms=100,
        group_consumer_heartbeat_interval_ms=100,
    )


def lower(admin: Admin) -> None:
    admin.update_features(dict.fromkeys(newest_levels(), 0), UpgradeType.SAFE_DOWNGRADE)
    assert admin.describe_features().finalized == {}


def raise_all(admin: Admin) -> None:
    admin.update_features(newest_levels())


def pay(producer: Producer, number: int) -> None:
    with producer.transaction():
        producer.send(TOPIC, b"%d" % number, partition=number % 2)


def paid(bootstrap: str) -> list[int]:
    with Consumer(bootstrap, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([(TOPIC, 0), (TOPIC, 1)])
        found = [int(message.value or b"") for message in consumer.messages(stop_at_end=True)]
    return sorted(found)


def test_an_open_producer_goes_through_all_levels_and_back(folder: Path) -> None:
    numbers = iter(range(100))
    done: list[int] = []
    with started(folder) as broker, Admin(broker.bootstrap) as admin:
        with Producer(broker.bootstrap, transactional_id="shop") as producer:
            changes: list[Callable[[Admin], None]] = [lower, raise_all, lower]
            for change in changes:
                change(admin)
                for _ in range(3):
                    done.append(next(numbers))
                    pay(producer, done[-1])
            admin.update_features(newest_levels())
        with Producer(broker.bootstrap, transactional_id="shop") as producer:
            done.append(next(numbers))
            pay(producer, done[-1])
        assert paid(broker.bootstrap) == done
    with started(folder) as broker:
        assert paid(broker.bootstrap) == done
        with Producer(broker.bootstrap, transactional_id="shop") as producer:
            done.append(next(numbers))
            pay(producer, done[-1])
        assert paid(broker.bootstrap) == done


def test_groups_of_the_new_protocol_wait_for_their_level(folder: Path) -> None:
    with started(folder) as broker, Admin(broker.bootstrap) as admin:
        with Producer(broker.bootstrap) as producer:
            for number in range(10):
                producer.send(TOPIC, b"%d" % number, partition=number % 2)
        reader = partial(
            Consumer, broker.bootstrap, group_id="readers", group_protocol="consumer", auto_offset_reset="earliest"
        )
        with reader() as consumer:
            consumer.subscribe([TOPIC])
            with pytest.raises(BarnabasError, match=r"UNSUPPORTED_VERSION|group\.protocol"):
                consumer.poll(PATIENCE_S)
        admin.update_features(newest_levels())
        with reader() as consumer:
            consumer.subscribe([TOPIC])
            found = [consumer.poll(PATIENCE_S) for _ in range(10)]
            consumer.commit()
        assert sorted(int(message.value or b"") for message in found if message is not None) == [*range(10)]
    with started(folder) as broker, Admin(broker.bootstrap) as admin:
        assert sum(each.offset for each in admin.group_offsets("readers").values()) == 10
