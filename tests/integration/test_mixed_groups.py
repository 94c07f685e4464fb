"""Members of both protocols in one group, and a live group that moves from one to the other: librdkafka's members."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from support.verifiable_members import TOPIC, sending

from barnabas.ports.broker_api.envelope import Caller
from barnabas.testing import TestBroker

pytestmark = [pytest.mark.process]

PARTITIONS, LIMIT_S = 6, 60.0


class Worker:
    """A consumer on a thread of its own, which commits before it gives up a partition and when it ends."""

    def __init__(self, bootstrap: str, protocol: str, strategy: str = "") -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        if protocol == "classic":
            settings |= {
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 500,
                "partition.assignment.strategy": strategy,
            }
        self._consumer = confluent_kafka.Consumer(settings)
        self.seen: list[tuple[int, bytes]] = []
        self.errors: list[str] = []
        self.partitions: set[int] = set()
        self._next: dict[int, int] = {}
        """The positions to commit, by partition."""
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        consumer = self._consumer
        consumer.subscribe([TOPIC], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        while not self._ends.is_set():
            message: Any = consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is not None:
                self.errors.append(str(message.error()))
            else:
                self.seen.append((message.partition(), message.value()))
                self._next[message.partition()] = message.offset() + 1
        self._commit()
        consumer.close()

    def _commit(self, partitions: Any = None) -> None:
        positions = self._next
        offsets = [
            confluent_kafka.TopicPartition(TOPIC, number, offset)
            for number, offset in positions.items()
            if partitions is None or number in partitions
        ]
        for each in offsets:
            del positions[each.partition]
        if offsets:
            try:
                self._consumer.commit(offsets=offsets, asynchronous=False)
            except confluent_kafka.KafkaException as error:
                self.errors.append(f"commit: {error}")

    def _assigned(self, _consumer: Any, partitions: list[Any]) -> None:
        self.partitions |= {each.partition for each in partitions}

    def _revoked(self, _consumer: Any, partitions: list[Any]) -> None:
        numbers = {each.partition for each in partitions}
        self._commit(numbers)
        self.partitions -= numbers

    def _lost(self, _consumer: Any, partitions: list[Any]) -> None:
        self.errors.append(f"lost {sorted(each.partition for each in partitions)}")
        self.partitions -= {each.partition for each in partitions}


def wait_until(what: Callable[[], bool], workers: list[Worker], broker: TestBroker) -> None:
    end = time.monotonic() + LIMIT_S
    while not what():
        if time.monotonic() >= end:
            with broker.admin() as admin:
                known = admin.describe_consumer_groups(["g"])
            pytest.fail(f"members: {[(each.partitions, each.errors) for each in workers]}; coordinator: {known}")
        time.sleep(0.05)


def settled(*workers: Worker) -> bool:
    shares = [each.partitions for each in workers]
    return all(shares) and sorted(number for share in shares for number in share) == list(range(PARTITIONS))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_rolling_upgrade_of_a_live_group_reads_every_message_once(strategy: str) -> None:
    # Both begin in one generation: librdkafka puts what a member had into its next assignment, as data of the assignor.
    with TestBroker(group_initial_rebalance_delay_ms=2_000) as broker:
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        with sending(broker.bootstrap, PARTITIONS) as sent:
            workers = [Worker(broker.bootstrap, "classic", strategy) for _ in range(2)]
            alive = list(workers)
            wait_until(lambda: settled(*alive), workers, broker)
            for _ in range(2):
                new = Worker(broker.bootstrap, "consumer")
                workers.append(new)
                alive.append(new)
                wait_until(lambda: settled(*alive), workers, broker)
                alive.pop(0).stop()
                wait_until(lambda: settled(*alive), workers, broker)
        wait_until(lambda: sum(len(each.seen) for each in workers) >= len(sent), workers, broker)
        for worker in alive:
            worker.stop()
    counts = Counter(value for worker in workers for _, value in worker.seen)
    assert [each for worker in workers for each in worker.errors] == []
    assert set(counts) == set(sent)
    assert [value for value, count in counts.items() if count > 1] == []


def test_partition_of_an_answer_that_a_member_has_not_received_in_time_has_an_owner_again() -> None:
    connections: set[int] = set()

    def of_first(request: Any, caller: Caller) -> bool:
        is_first = bool(request.member_id == first_id)
        if is_first:
            connections.add(caller.connection)
        return is_first

    with TestBroker() as broker, broker.admin() as admin:
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        workers = [Worker(broker.bootstrap, "consumer")]
        try:
            wait_until(lambda: settled(*workers), workers, broker)
            (member,) = admin.describe_consumer_groups(["g"])[0].members
            first_id = member.member_id
            # librdkafka gives a heartbeat up after its interval, connects again, and does not say what it has.
            fault = broker.faults.delay("ConsumerGroupHeartbeat", when=of_first)
            workers.append(Worker(broker.bootstrap, "consumer"))

            def is_changed() -> bool:
                known = {each.member_id: each for each in admin.describe_consumer_groups(["g"])[0].members}
                return len(known[first_id].assignment) < PARTITIONS

            wait_until(is_changed, workers, broker)
            before = set(connections)
            wait_until(lambda: connections > before, workers, broker)
            fault.remove()
            wait_until(lambda: settled(*workers), workers, broker)
        finally:
            for worker in workers:
                worker.stop()
