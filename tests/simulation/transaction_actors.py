"""Workers that write in transactions, those who read what they commit, and the record of the answers to both."""

from typing import Any

from attrs import define, field
from simulation.actors import Actor
from simulation.client import TOPIC
from simulation.cluster_checker import Broken

from barnabas import Admin, Consumer, Producer
from barnabas.core.client.errors import AbortNeeded, ClientTimeout
from barnabas.core.cluster.features import TRANSACTION_VERSION
from barnabas.core.message.batch_writer import encode_columns
from barnabas.ports.broker_api.features import UpgradeType
from barnabas.ports.broker_api.produce import Produce, ProducePartition, ProduceResult
from barnabas.ports.broker_api.producers import InitProducerId, InitProducerIdResult
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import BarnabasError
from barnabas.ports.types import TopicPartition
from barnabas.simulation import Program, World

PARTITIONS = 2
TP = TopicPartition(TOPIC, 0)
"""The partition of a worker's committed offset: the number of its next item."""
REMOVED = "removed"
"""A topic that is deleted in the middle of transactions."""
TIMEOUT_MS = 3000
CALLS: dict[str, Any] = {
    "request_timeout_ms": 1500,
    "default_api_timeout_ms": 4000,
    "retry_backoff_ms": 50,
    "metadata_max_age_ms": 2000,
}


@define
class Commitments:
    """The state of the transactions of one transactional id. Items are numbers, from 0 on, each written once."""

    acknowledged: int = 0
    """The largest offset that was acknowledged, or returned to a client: no later answer is smaller."""
    tried: int = 0
    """The largest offset in any request."""
    visible: int = 0
    """A reader of committed messages has seen the items below."""
    commits: int = 0
    aborts: int = 0

    def observed(self, who: str, position: int, lower_bound: int) -> None:
        """Check an answer; `promised` is its smallest valid value at the time of the request."""
        if position < lower_bound:
            raise Broken(f"position: {who} gets {position}, where {lower_bound} was committed or seen")
        if position > self.tried:
            raise Broken(f"position: {who} gets {position}, and the largest one sent is {self.tried}")
        self.acknowledged = max(self.acknowledged, position)

    @property
    def lower_bound(self) -> int:
        return max(self.acknowledged, self.visible)


class Worker:
    """Writes the items behind its group's position, and the new position, in one transaction after the other.

    Several may have one transactional id: the last one that has begun fences the others.
    """

    def __init__(self, name: str, book: Commitments) -> None:
        self._name = name
        self._book = book
        self._transactions = 0
        self.retired = False
        """It begins no further transactions, also after a restart."""

    def run(self, program: Program) -> None:
        chance = program.world.entropy.child(f"{program.name} {program.lives}")
        with (
            Producer(
                program,
                transactional_id=self._name,
                transaction_timeout_ms=TIMEOUT_MS,
                delivery_timeout_ms=TIMEOUT_MS,
                max_block_ms=1000,
                allow_auto_create_topics=False,
                **CALLS,
            ) as producer,
            Consumer(program, group_id=self._name, enable_auto_commit=False, **CALLS) as asker,
        ):
            if not self.retired:
                producer.init_transactions(10)
            while not self.retired:
                position = self.position(asker)
                end = position + 1 + chance.below(6)
                self._book.tried = max(self._book.tried, end)
                self._transact(producer, program, position, end, commits=chance.below(5) > 0)
                program.sleep(0.1 * chance.fraction())

    def position(self, asker: Consumer) -> int:
        lower_bound = self._book.lower_bound
        (found,) = asker.committed([TP], 10).values()
        position = 0 if found is None else found.offset
        self._book.observed(self._name, position, lower_bound)
        return position

    def _transact(self, producer: Producer, program: Program, position: int, end: int, *, commits: bool) -> None:
        """Raise an error where the producer cannot be used further."""
        self._transactions += 1
        tag = f"{self._name} {program.name}-{program.lives}-{self._transactions}"
        producer.begin_transaction(10)
        try:
            for item in range(position, end):
                producer.send(TOPIC, f"{tag} {item} {end - position}".encode(), partition=item % PARTITIONS)
            producer.send_offsets({TP: end}, self._name, timeout=TIMEOUT_MS / 1000)
            if commits:
                self._commit(producer)
                self._book.acknowledged = max(self._book.acknowledged, end)
                self._book.commits += 1
                return
        except (AbortNeeded, ClientTimeout):
            pass
        producer.abort_transaction(20)
        self._book.aborts += 1

    def _commit(self, producer: Producer) -> None:
        """Until it is known how it went. Raises `AbortNeeded`, and what makes the producer useless."""
        for attempt in range(10):
            try:
                producer.commit_transaction(4)
                return
            except ClientTimeout:
                if attempt == 9:
                    raise BarnabasError("the outcome of the transaction is unknown") from None


class Remover:
    """Deletes a topic in the middle of a transaction that writes to it: its end marker has no receiver."""

    def run(self, program: Program) -> None:
        chance = program.world.entropy.child(f"{program.name} {program.lives}")
        with (
            Admin(program, request_timeout_ms=1500, default_api_timeout_ms=4000) as admin,
            Producer(
                program,
                transactional_id=program.name,
                transaction_timeout_ms=TIMEOUT_MS,
                delivery_timeout_ms=TIMEOUT_MS,
                max_block_ms=1000,
                allow_auto_create_topics=False,
                **CALLS,
            ) as producer,
        ):
            producer.init_transactions(10)
            while True:
                if REMOVED not in admin.list_topics():
                    admin.create_topic(REMOVED, partitions=1)
                producer.begin_transaction(10)
                producer.send(REMOVED, b"of a topic that is deleted", partition=0).result(5)
                admin.delete_topics([REMOVED])
                program.sleep(0.2 * chance.fraction())
                producer.commit_transaction(10) if chance.below(2) else producer.abort_transaction(10)
                program.sleep(0.5 * chance.fraction())


class VersionChanger:
    """Finalizes one version of transactions after the other, up and down, under producers that run."""

    def __init__(self) -> None:
        self.changes = 0

    def run(self, program: Program) -> None:
        chance = program.world.entropy.child(f"{program.name} {program.lives}")
        with Admin(program, request_timeout_ms=1500, default_api_timeout_ms=4000) as admin:
            while True:
                set_version(admin, (1, 2, 2, 0)[chance.below(4)])
                self.changes += 1
                program.sleep(0.3 + 2 * chance.fraction())


def set_version(admin: Admin, level: int) -> None:
    """Raises `BarnabasError`."""
    before = admin.describe_features().level(TRANSACTION_VERSION)
    if level != before:
        kind = UpgradeType.UPGRADE if level > before else UpgradeType.SAFE_DOWNGRADE
        admin.update_features({TRANSACTION_VERSION: level}, kind)


@define
class SeenItems:
    """The messages that one reader got, by partition: offset and value."""

    by_partition: list[dict[int, str]] = field(factory=lambda: [{} for _ in range(PARTITIONS)])


class Witness:
    """Reads committed messages from the first one on, again in each life."""

    def __init__(self, books: dict[str, Commitments], seen: SeenItems) -> None:
        self._books = books
        self._seen = seen
        self.reached = [0] * PARTITIONS
        """The offset that comes next, in this life."""

    def run(self, program: Program) -> None:
        self.reached = [0] * PARTITIONS
        with Consumer(program, isolation_level="read_committed", auto_offset_reset="earliest", **CALLS) as consumer:
            consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)], position=0)
            while True:
                for message in consumer.poll_many(100, timeout=0.3):
                    self._take(message.partition, message.offset, (message.value or b"").decode())
                for number in range(PARTITIONS):
                    self.reached[number] = consumer.position(TopicPartition(TOPIC, number), 4) or 0

    def _take(self, number: int, offset: int, value: str) -> None:
        seen = self._seen.by_partition[number]
        if seen.setdefault(offset, value) != value:
            raise Broken(f"inconsistent: {value} at {offset} of partition {number}, where {seen[offset]} was")
        name, _, item, _ = value.split()
        book = self._books.get(name)
        if book is None or int(item) >= book.tried:
            raise Broken(f"unexpected: {value}")
        book.visible = max(book.visible, int(item) + 1)


class Asker:
    """Asks for the position of a worker's group, over and over: who has seen messages finds it behind them."""

    def __init__(self, name: str, book: Commitments) -> None:
        self._worker = Worker(name, book)
        self._name = name
        self.answers = 0

    def run(self, program: Program) -> None:
        chance = program.world.entropy.child(f"{program.name} {program.lives}")
        with Consumer(program, group_id=self._name, enable_auto_commit=False, **CALLS) as asker:
            while True:
                self._worker.position(asker)
                self.answers += 1
                program.sleep(0.3 * chance.fraction())


@define(frozen=True)
class Identity:
    """A transactional id whose transaction has no partition."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Stray(Actor):
    """A client of one broker that writes in a transaction and never adds the partition to it, as a client with a bug
    does, or a request that comes after the end of its transaction: a leader that takes such a batch has a transaction
    that no producer ends, and readers of committed messages read no further."""

    def __init__(self, world: World, broker_id: int, identities: list[Identity]) -> None:
        """`identities`: of all strays; the coordinator of one may be another broker than the one that is written to."""
        self.refused = 0
        self._broker_id = broker_id
        self._identities = identities
        self._number = 0
        self.entropy = world.entropy.child(f"stray {broker_id}")
        super().__init__(world, f"stray-{broker_id}", broker_id)

    def act(self) -> None:
        below = self.entropy.below
        if self._identities and below(3):
            self._write(self._identities[below(len(self._identities))])
            return
        self._number += 1  # another one each time, until the broker is its coordinator
        name = f"stray-{self._broker_id}-{self._number}"

        def begun(result: InitProducerIdResult) -> None:
            if result.error is ErrorCode.NONE:
                self._identities.append(Identity(name, result.producer_id, result.producer_epoch))
            self.later(100 + below(300))

        self.ask(InitProducerId(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS), begun)

    def _write(self, identity: Identity) -> None:
        batch = encode_columns(
            [f"stray {identity.transactional_id} 0 1".encode()],
            now_ms=self.world.clock.now_ms(),
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        entry = ProducePartition(TOPIC, self.entropy.below(PARTITIONS), memoryview(batch))
        request = Produce(partitions=[entry], timeout_ms=1000, transactional_id=identity.transactional_id)
        self.ask(request, self._answered)

    def _answered(self, result: ProduceResult) -> None:
        self.refused += result.partitions[0].error is ErrorCode.TRANSACTION_ABORTABLE
        self.later(200 + self.entropy.below(500))
