"""Seeded stories: producers, coordinators that die, writes and markers that are lost; and what must hold in the end.

The messages of one transaction count in all partitions or in none, as its producer learned; no transaction stays open.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from attrs import define, field
from support.long_tests import first_is_quick
from support.transaction_harness import HERE, T0, T1, U0, TransactionHarness

from barnabas.core.coordinator.log import Record
from barnabas.ports.broker_api.groups import PartitionOutcome
from barnabas.ports.broker_api.transactions import TxnMarker, WriteTxnMarkersResult, WrittenTxnMarker
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.ports.types import TopicPartition

SEEDS = 150
STEPS = 120
KEYS = (T0, T1, U0)


@define
class Place:
    """A partition as its leader knows it: what was written, and how it ended."""

    epochs: dict[int, int] = field(factory=dict)
    coordinators: dict[int, int] = field(factory=dict)
    open: dict[int, list[int]] = field(factory=dict)
    """Serial numbers of transactions with something in it, by producer id."""
    fates: dict[int, set[bool]] = field(factory=dict)
    """By serial number: committed or aborted."""

    def write(self, producer_id: int, epoch: int, serial: int) -> bool:
        if epoch < self.epochs.get(producer_id, -1):
            return False
        self.epochs[producer_id] = epoch
        self.open.setdefault(producer_id, []).append(serial)
        return True

    def mark(self, marker: TxnMarker) -> E:
        if marker.producer_epoch < self.epochs.get(marker.producer_id, -1):
            return E.INVALID_PRODUCER_EPOCH
        if marker.coordinator_epoch < self.coordinators.get(marker.producer_id, -1):
            return E.TRANSACTION_COORDINATOR_FENCED
        self.epochs[marker.producer_id] = marker.producer_epoch
        self.coordinators[marker.producer_id] = marker.coordinator_epoch
        for serial in self.open.pop(marker.producer_id, ()):
            self.fates.setdefault(serial, set()).add(marker.committed)
        return E.NONE


@define
class Client:
    """One process that uses a transactional id; others may use it, too."""

    name: str
    who: tuple[int, int] | None = None
    serial: int = -1
    """The number of its present transaction; -1: none is begun."""
    added: set[TopicPartition] = field(factory=set)
    ending: bool | None = None
    """It has asked to commit, or to abort, and has no answer yet that counts."""


class Story:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.places = {key: Place() for key in KEYS}
        self.clients = [Client("x"), Client("x"), Client("y")]
        self.observed: dict[int, bool] = {}
        """The outcome of each transaction that the producer got, by serial number."""
        self.serials = 0
        self.wrote: dict[int, set[TopicPartition]] = {}
        self.epoch = 0
        self.late: list[Callable[[], None]] = []
        """Markers of former coordinators that are still in flight."""
        self.next_id = 100
        self.harness = self.coordinator({})

    def coordinator(self, log: dict[int, list[Record]]) -> TransactionHarness:
        self.epoch += 1
        harness = TransactionHarness(log, load=False, first_id=self.next_id, abort_check_interval_ms=1000)
        harness.coordinator_epoch = self.epoch
        harness._written = self.marked  # type: ignore[method-assign]  # the places are the story's
        harness.hold = harness.hold_markers = True
        harness.load()
        harness.coordinator.start()
        harness.run_until_idle()
        return harness

    def marked(self, markers: Any) -> WriteTxnMarkersResult:
        written = []
        for marker in markers:
            outcomes = []
            for key in marker.partitions:
                lost = self.random.random() < 0.2
                error = E.NOT_LEADER_OR_FOLLOWER if lost else self.places[key].mark(marker)
                outcomes.append(PartitionOutcome(key.topic, key.partition, error))
            written.append(WrittenTxnMarker(producer_id=marker.producer_id, partitions=outcomes))
        return WriteTxnMarkersResult(markers=written)

    # --- what may happen

    def die(self) -> None:
        """The coordinator is killed; what it was writing is there, or not, and so are its markers."""
        old, random = self.harness, self.random
        landed: set[int] = set()
        for partition, records, _ in old.held:
            if partition in landed:
                continue
            if random.random() < 0.5:
                old.log.setdefault(partition, []).extend(records)
            else:
                landed.add(partition)  # what was behind it is lost as well
        self.late += [lambda markers=markers: self.marked(markers) for _, markers, _ in old.asked_to_mark]  # type: ignore[misc]
        self.next_id = (old.next_id or 0) + 1000
        log = {partition: list(records) for partition, records in old.log.items()}
        for partition in old.coordinator._table.partitions:
            old.coordinator.unload(partition)
        self.harness = self.coordinator(log)

    def continue_steps(self) -> None:
        """Some of what is under way comes to an end."""
        harness, random = self.harness, self.random
        choices: list[Callable[[], None]] = []
        if harness.held:
            choices += [harness.finish] * 4
            choices += [lambda: self.fail(landed=True), lambda: self.fail(landed=False)]
        if harness.asked_to_mark:
            choices += [harness.mark, harness.mark, harness.mark]
            if harness.asked_to_mark[0][0] != HERE:
                choices.append(lambda: harness.mark(lost=True))
        if self.late:
            choices.append(self.late.pop(0))
        choices.append(lambda: harness.pass_time(random.choice((1, 50, 700, 3000))))
        random.choice(choices)()

    def fail(self, *, landed: bool) -> None:
        """A write that takes too long may be in the log all the same."""
        partition, records, _ = self.harness.held[0]
        if landed:
            self.harness.log.setdefault(partition, []).extend(records)
            self.harness.finish(E.REQUEST_TIMED_OUT)
        else:
            self.harness.finish(E.NOT_ENOUGH_REPLICAS)

    def act(self, client: Client) -> None:
        random = self.random
        if client.who is None or random.random() < 0.05:
            self.init(client)
        elif client.ending is not None:
            self.end(client, client.ending)
        elif client.serial < 0 or random.random() < 0.3:
            self.add(client)
        elif random.random() < 0.5:
            self.write(client)
        else:
            self.end(client, random.random() < 0.6)

    def answered(self, asked: Any) -> Any:
        """Return the answer; None when it does not come."""
        for _ in range(12):
            if asked.result is not None:
                return asked.result
            self.continue_steps()
        return asked.result

    def init(self, client: Client) -> None:
        result = self.answered(self.harness.init(client.name, timeout_ms=self.random.choice((2000, 60_000))))
        client.serial, client.ending, client.who = -1, None, None
        client.added.clear()
        if result is not None and result.error is E.NONE:
            client.who = (result.producer_id, result.producer_epoch)

    def add(self, client: Client) -> None:
        assert client.who is not None
        wanted = self.random.sample(KEYS, self.random.randint(1, 3))
        result = self.answered(self.harness.add(client.who, *wanted, name=client.name))
        errors = {E.COORDINATOR_NOT_AVAILABLE} if result is None else {each.error for each in result.partitions}
        if errors == {E.NONE}:
            if client.serial < 0:
                self.serials += 1
                client.serial = self.serials
                self.wrote[client.serial] = set()
            client.added.update(wanted)
        elif errors & {E.PRODUCER_FENCED, E.INVALID_PRODUCER_ID_MAPPING}:
            client.who = None

    def write(self, client: Client) -> None:
        """Write as a leader does: it asks the coordinator before the first batch of a transaction."""
        assert client.who is not None
        key = self.random.choice(KEYS)
        place = self.places[key]
        if not place.open.get(client.who[0]):
            (error,) = self.harness.verified(client.who, key, name=client.name)
            if error is not E.NONE:
                return
        if place.write(*client.who, client.serial):
            self.wrote[client.serial].add(key)

    def end(self, client: Client, commit: bool) -> None:
        assert client.who is not None
        client.ending = commit
        result = self.answered(self.harness.end(client.who, client.name, commit=commit))
        if result is None:
            return
        if result.error is E.NONE:
            self.observed[client.serial] = commit
        if result.error in (E.NONE, E.INVALID_TXN_STATE):
            client.serial, client.ending = -1, None
            client.added.clear()
        elif result.error in (E.PRODUCER_FENCED, E.INVALID_PRODUCER_ID_MAPPING):
            client.who, client.serial, client.ending = None, -1, None
            client.added.clear()

    # --- the end

    def run(self) -> None:
        for _ in range(STEPS):
            choice = self.random.random()
            if choice < 0.05:
                self.die()
            elif choice < 0.5:
                self.continue_steps()
            else:
                self.act(self.random.choice(self.clients))
        harness = self.harness
        harness.hold = harness.hold_markers = False
        while self.late:
            self.late.pop(0)()
        for _ in range(100):
            while harness.held:
                harness.finish()
            while harness.asked_to_mark:
                harness.mark()
            harness.pass_time(1500)  # long enough for every transaction to time out, and every marker to be tried again

    def check(self) -> None:
        for name in ("x", "y"):
            state = self.harness.state(name)
            assert state in ("", "Empty", "CompleteCommit", "CompleteAbort"), f"{name} ends in {state}"
        for key, place in self.places.items():
            assert not any(place.open.values()), f"{key} has a transaction that is never ended"
        for serial, keys in self.wrote.items():
            fates = {fate for key in keys for fate in self.places[key].fates[serial]}
            assert len(fates) <= 1, f"transaction {serial} counts in part"
            if serial in self.observed and fates:
                assert fates == {self.observed[serial]}, (
                    f"transaction {serial} ended differently from its producer's answer"
                )


@pytest.mark.parametrize(
    "seeds", first_is_quick([range(first, first + 25) for first in range(0, SEEDS, 25)], 2), ids=str
)
def test_records_of_a_transaction_become_visible_together(seeds: range) -> None:
    commits = 0
    for seed in seeds:
        story = Story(seed)
        story.run()
        try:
            story.check()
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
        commits += sum(story.observed.values())
    assert commits > len(seeds), "too little happens"
