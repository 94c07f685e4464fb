"""Transactions, compaction and retention in a cluster, and what becomes of them: one seed, played."""

from collections.abc import Callable, Sequence
from typing import Any

from simulation.billing_actors import BALANCES, BILLS, GROUP, ORDERS, Clerk, Ledger, Reader, Seller
from simulation.cluster_checker import Broken
from simulation.cluster_story import SETTINGS
from simulation.transaction_actors import set_version

from barnabas import Admin, Consumer
from barnabas.ports.errors import BarnabasError
from barnabas.simulation import Disasters, World

SECONDS = 8.0
SETTLED_WITHIN = 90.0
CLEANING: dict[str, object] = {
    "log_segment_bytes": 2_500,
    "log_cleaner_backoff_ms": 400,
    "log_cleaner_min_cleanable_ratio": 0.05,
    "log_cleaner_dedupe_buffer_size": 24_000,
    "transaction_state_log_num_partitions": 2,
    "transaction_state_log_segment_bytes": 2_500,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 500,
}


class BillingStory:
    """`brokers`: 0 for 1 or 3, as the seed has it."""

    def __init__(
        self,
        seed: int,
        *,
        brokers: int = 0,
        seconds: float = SECONDS,
        kinds: Sequence[str] = Disasters.KINDS,
        **settings: Any,
    ) -> None:
        self.seed = seed
        self.seconds = seconds
        count = brokers or (1, 3, 3)[seed % 3]
        self.kinds = kinds if count > 1 else [kind for kind in kinds if kind not in ("power_cut", "lose_disk")]
        replicas = min(3, count)
        own: dict[str, Any] = {
            **SETTINGS,
            **CLEANING,
            "default_replication_factor": replicas,
            "offsets_topic_replication_factor": replicas,
            "transaction_state_log_replication_factor": replicas,
            "transaction_state_log_min_isr": min(2, replicas),
            "min_insync_replicas": min(2, replicas),
            **settings,
        }
        self.world = World(seed, brokers=count, session_seconds=2.0, **own)
        self.ledger = Ledger()
        self.seller = Seller(self.ledger)
        self.reader = Reader(self.ledger)

    def play(self) -> None:
        try:
            with self.world:
                self._play()
        except BaseException as error:
            error.add_note(f"again: make sim STORY=billing FIRST={self.seed} SEEDS=1")
            raise

    def _play(self) -> None:
        world = self.world
        with Admin(world.client("founder")) as admin:
            admin.create_topic(ORDERS, partitions=1)
            if self.seed % 5 == 4:
                set_version(admin, 1)
            admin.create_topic(BILLS, partitions=2)
            admin.create_topic(BALANCES, partitions=1, configs={"cleanup.policy": "compact", "segment.bytes": "900"})
        world.program("seller", self.seller.run, restart_after=0.5)
        for number in range(2):
            clerk = Clerk(self.ledger, world.entropy.child(f"clerk {number}"))
            world.program(f"clerk-{number}", clerk.run, restart_after=0.5)
        world.program("reader", self.reader.run, restart_after=0.5)
        with Disasters(world, every=0.8, lasting=2.0, kinds=self.kinds, spared=["founder"]):
            world.run(self.seconds)
        self._wait_until_stable()

    # --- all is well again

    def _wait_until_stable(self) -> None:
        world = self.world
        for broker in world.brokers.values():
            if any(partition.log.failure is not None for partition in broker.partitions.values()):
                broker.restart()  # as an operator does who has repaired the disk
        sold = len(self.ledger.sold)
        self._await("orders are taken", lambda: len(self.ledger.sold) > sold)
        self.seller.active = False
        world.run(2)
        end = max(self.ledger.sold) + 1
        with Admin(world.client("inspector"), default_api_timeout_ms=20_000) as admin:
            self._await("the clerks have billed every order", lambda: self._position(admin) >= end)
        for name in ("clerk-0", "clerk-1", "reader"):
            world.programs[name].kill()
        world.run(6)  # what they left open times out
        self._check()

    @staticmethod
    def _position(admin: Admin) -> int:
        try:
            return max((each.offset for each in admin.group_offsets(GROUP).values()), default=0)
        except BarnabasError:
            return 0

    def _check(self) -> None:
        ledger = self.ledger
        for seen in ledger.bills.values():
            seen.clear()
        for partition, offset, _, value in self._read(BILLS):
            assert value is not None
            ledger.saw(partition, offset, value)
        halves = [set(ledger.bills[number].values()) for number in (0, 1)]
        if halves[0] != halves[1]:
            raise Broken(
                f"half: {sorted(halves[0] ^ halves[1])[:3]} of a transaction is present, and the rest is missing"
            )
        billed = {order for order, _ in halves[0]}
        lost = sorted(set(ledger.sold.values()) - billed)
        if lost:
            raise Broken(f"lost: the orders {lost[:5]} have no bill, and the group is behind them")
        there = {tag for _, tag in halves[0]}
        if missing := sorted(ledger.committed - there):
            raise Broken(f"lost: {missing[:3]} were committed, and are not there")
        self._check_balances(there)

    def _check_balances(self, there: set[bytes]) -> None:
        """The last of each key that was committed is the last that is shown."""
        last: dict[bytes, tuple[int, bytes]] = {}
        for text, (key, offset) in self.ledger.offsets.items():
            if text.split()[1] in there and offset >= last.get(key, (-1, b""))[0]:
                last[key] = offset, text
        shown: dict[bytes, tuple[int, bytes]] = {}
        for _, offset, name, value in self._read(BALANCES):
            assert name is not None and value is not None
            if value.split()[1] not in there:
                raise Broken(f"aborted: the balance {value!r} at {offset} belongs to nothing that was committed")
            shown[name] = offset, value
        for key, newest in last.items():
            if shown.get(key, (-1, b""))[0] < newest[0]:
                raise Broken(f"compaction: the last of {key!r} is {shown.get(key)}, and was {newest}")

    def _read(self, topic: str) -> list[tuple[int, int, bytes | None, bytes | None]]:
        settings: dict[str, Any] = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        with Consumer(self.world.client(f"reader of {topic}"), default_api_timeout_ms=30_000, **settings) as consumer:
            consumer.assign(topic)
            return [
                (message.partition, message.offset, message.key, message.value)
                for message in consumer.messages(stop_at_end=True)
            ]

    def _await(self, what: str, condition: Callable[[], bool]) -> None:
        began = self.world.now
        while not condition():
            if self.world.now - began > SETTLED_WITHIN:
                raise Broken(f"liveness: {what}: not within {SETTLED_WITHIN:.0f} s of calm")
            self.world.run(0.3)
