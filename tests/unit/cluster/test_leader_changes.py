"""The log of the controller: one line for an event of the cluster, however many partitions it concerns."""

from barnabas.core.cluster.controller import LeaderChanges, named
from barnabas.core.cluster.topics import NO_LEADER, BrokerRegistration
from barnabas.ports.report import Level, Line
from barnabas.ports.types import TopicPartition


def _brokers(*numbers: int, epoch: int = 7, leaving: int | None = None) -> dict[int, BrokerRegistration]:
    return {
        each: BrokerRegistration(broker_id=each, endpoints=(), broker_epoch=epoch, leaving=each == leaving)
        for each in numbers
    }


def _key(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


class Log:
    def __init__(self) -> None:
        self.lines: list[tuple[Level, str]] = []
        self.changes = LeaderChanges(self._report)

    def _report(self, text: str) -> None:
        self.lines.append((text.level if isinstance(text, Line) else Level.WARNING, str(text)))

    def flushed(self) -> list[tuple[Level, str]]:
        self.changes.flush()
        lines, self.lines = self.lines, []
        return lines


def test_dead_broker_is_one_line_with_the_new_leaders() -> None:
    log = Log()
    log.changes.note_brokers(_brokers(1, 2, 3), _brokers(1, 3))
    for number in range(58):
        log.changes.note_leader(_key(number), 1 if number < 40 else 3)
    assert log.flushed() == [(Level.INFO, "broker 2 is gone: 58 partitions change leader, 40 to 1, 18 to 3")]
    assert log.flushed() == []


def test_brokers_that_come_return_or_stop_are_named() -> None:
    log = Log()
    log.changes.note_brokers(_brokers(1), _brokers(1, 2))
    assert log.flushed() == [(Level.INFO, "broker 2 has joined")]
    log.changes.note_brokers(_brokers(1), _brokers(1, 2))
    log.changes.note_brokers(_brokers(1, 2), _brokers(2, 3))
    assert log.flushed() == [(Level.INFO, "brokers 2, 3 have joined, broker 1 is gone")]
    log.changes.note_brokers(_brokers(2), _brokers(2, epoch=9))
    log.changes.note_leader(_key(0), 2)
    assert log.flushed() == [(Level.INFO, "broker 2 is back: 1 partition changes leader, 1 to 2")]
    log.changes.note_brokers(_brokers(1, 2), _brokers(1, 2, leaving=2))
    assert log.flushed() == [(Level.INFO, "broker 2 is about to stop: no partition changes leader")]


def test_partitions_without_leader_are_a_warning_that_names_some() -> None:
    log = Log()
    log.changes.note_brokers(_brokers(1, 2), _brokers(1))
    for number in range(7):
        log.changes.note_leader(_key(number), NO_LEADER)
        log.changes.note_loss(_key(number), "broker 2 is not alive")
    some = "orders-0, orders-1, orders-2, orders-3, orders-4 and 2 more"
    first, second = log.flushed()
    assert first == (Level.WARNING, f"broker 2 is gone: 7 partitions have no leader ({some})")
    assert second[0] is Level.WARNING
    assert second[1].startswith(f"{some} have no leader: broker 2 is not alive. Start the brokers that are missing")


def test_changes_without_an_event_of_brokers_are_reported_alone() -> None:
    log = Log()
    log.changes.note_leader(_key(0), 3)
    assert log.flushed() == [(Level.INFO, "1 partition changes leader, 1 to 3")]


def test_changes_that_another_controller_reports_are_dropped() -> None:
    log = Log()
    log.changes.note_brokers(_brokers(1, 2), _brokers(1))
    log.changes.note_leader(_key(0), 1)
    log.changes.clear()
    assert log.flushed() == []


def test_few_partitions_are_all_named() -> None:
    assert named([_key(0), _key(1)]) == "orders-0, orders-1"
