"""Every short history of a replica whose log is damaged, while producers send, send again, and end transactions.

Replica 1 rots: its log is restarted, rolled, cut and repaired by the product's code (`UnifiedLog`, `Partition`,
`LogScrubber`, `SegmentRepairs`), from replica 2, whose copy is good. Either of them leads. What is checked are
promises, by what is in the good copy and by what was decided:

- no batch is appended twice, by producer id, epoch and sequence, and no accepted one is missing;
- the log of replica 1 has nothing that is not in the good copy, but for what it appended alone;
- readers of committed records are given records of committed transactions, and all of them, as far as they may read;
- once all is repaired, replica 1 has what the good copy has, takes the next batch of each producer, knows the last one
  again, and gives all that is decided.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from types import SimpleNamespace
from typing import Any

from attrs import frozen
from support.history_search import BrokenPromise, search_histories

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.core.cluster.topics import PartitionState, ReplicaId
from barnabas.core.log.append_origin import AppendOrigin
from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.log.scrubbing.scrubber import LogScrubber, ScrubSettings
from barnabas.core.message.batch_header import BatchHeader, is_crc_valid, parse_header
from barnabas.core.message.batch_reader import whole_batches
from barnabas.core.message.control_records import read_marker
from barnabas.core.replica.partition.local_partitions import LocalPartitions
from barnabas.core.replica.partition.partition import Partition
from barnabas.core.replica.segment_repairs import SegmentRepairs
from barnabas.ports.broker_api.fetch import FetchResult, FetchResultPartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.testing.logs import TP, bytes_of, numbered, open_log

ROTTEN, GOOD = 1, 2
CONFIG = LogConfig(index_interval_bytes=1 << 20, retention_ms=-1)
IDEMPOTENT, TRANSACTIONAL = 7, 8
_HEADER_BYTE, _CONTENT_BYTE, _LENGTH_BYTE = 50, -1, 11
"""In a batch: a byte of the producer id, which the CRC alone protects; one of the record; one of the length."""


@frozen
class Scope:
    """The limits of a search.

    most:   actions, and how often each may happen in one history.
    before: what has happened when the search begins.
    rots:   how many batches may rot.
    kinds:  which of their bytes: 1 = in the producer id, 2 = in the record too, 3 = in the length too.
    """

    most: Mapping[str, int]
    before: tuple[str, ...] = ()
    rots: int = 0
    kinds: int = 3


class Client:
    """A producer. It sends what was refused again before anything else."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.next = 0
        self.is_pending = False
        """True if the batch with the sequence `next` was refused, or its answer was lost."""
        self.decision: bool | None = None
        """The marker that the coordinator has to write: True to commit."""
        self.is_open = False

    @cache  # noqa: B019  one of two short-lived clients
    def batch(self, sequence: int) -> bytes:
        is_transactional = self.producer_id == TRANSACTIONAL
        return bytes(
            numbered(b"%03d" % sequence, producer=self.producer_id, sequence=sequence, transactional=is_transactional)
        )


class History:
    """The two replicas, and the producers."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.used: dict[str, int] = {}
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.disk = MemoryDisk(now_ms=lambda: 0)
        self.good = open_log(MemoryLogDir(MemoryDisk(now_ms=lambda: 0)).folder("t-0"), config=CONFIG)
        self.leader, self.epoch = ROTTEN, 0
        self.clients = {each: Client(each) for each in (IDEMPOTENT, TRANSACTIONAL)}
        self.rotten: set[int] = set()
        self.local = LocalPartitions(
            lambda *_: ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
            lambda _: None,
            clock=self.clock,
            isr_silence_max_ms=0,
        )
        self._open(recover=True, recovery_point=0)

    # --- replica 1

    def _open(self, *, recover: bool, recovery_point: int) -> None:
        self.disk.in_use = False
        self.scheduler = ManualScheduler(self.clock)
        folder = MemoryLogDir(self.disk).folder("t-0")
        self.log = open_log(folder, config=CONFIG, recover=recover, recovery_point=recovery_point, may_end_early=True)
        self.partition = Partition(
            self.log, TP, topic_id=bytes(16), own=ReplicaId(1, 1), replicas=(1, 2), state=self._state()
        )
        self.partition.high_watermark = min(self.good.log_end_offset, self.log.log_end_offset)
        self.local.by_key[TP] = self.partition
        home: Any = SimpleNamespace(
            logs={TP: self.log},
            cleaned_to={},
            in_replacement=set(),
            checkpoint_contents=dict,
            write_files_later=lambda _scheduler, _name, _contents, done=lambda: None: done(),
        )
        self.repairs = SegmentRepairs(
            SimpleNamespace(partitions=self.local.by_key),  # type: ignore[arg-type]  # as much of it as is used
            submit=self._answer,
            is_alive=lambda _: True,
            home_of=lambda _: home,
            clock=self.clock,
            scheduler=self.scheduler,
            report=lambda _: None,
            hold=lambda _: True,
            release=lambda *_: None,
            again=self._check_soon,
        )
        self.scrubber = LogScrubber(
            {TP: home},
            settings=lambda: ScrubSettings(bytes_per_second=0, interval_ms=1 << 40),
            clock=self.clock,
            scheduler=self.scheduler,
            served=lambda: 0,
            on_damage=self.repairs.on_damage,
            failed=lambda _log, error: _fail(error),
        )

    def _check_soon(self, log: UnifiedLog, offset: int) -> None:
        self.scrubber.check_soon(log, offset)

    def _state(self) -> PartitionState:
        return PartitionState(
            leader=self.leader,
            leader_epoch=self.epoch,
            isr=(ROTTEN, GOOD),
            broker_epochs={ROTTEN: 1, GOOD: 2},
            min_isr=1,
            partition_epoch=self.epoch,
        )

    def _answer(self, _broker: int, request: Any, reply: Callable[[Any], None]) -> None:
        """Replica 2 answers a fetch of the repair."""
        (asked,) = request.partitions
        records = memoryview(bytes_of(self.good, asked.offset)) if asked.offset < self.good.log_end_offset else b""
        reply(FetchResult(partitions=[FetchResultPartition("t", 0, ErrorCode.NONE, records=records)]))

    def _flush(self, log: UnifiedLog) -> None:
        log.flushes.now()

    def _lead(self, leader: int) -> None:
        self.leader, self.epoch = leader, self.epoch + 1
        self.partition.apply_state(self._state(), (ROTTEN, GOOD), ReplicaId(1, 1), 0)

    def _follow(self) -> None:
        """Replica 1 cuts what the leader does not have, and fetches the rest."""
        self.partition.truncate_to(self.good.log_end_offset, 0)
        self.rotten = {each for each in self.rotten if each < self.good.log_end_offset}
        self._flush(self.log)
        self._copy()

    def _copy(self) -> None:
        while self.log.log_end_offset < self.good.log_end_offset:
            self.log.append_replicated(memoryview(bytes_of(self.good, self.log.log_end_offset)), now_ms=0)
        self._flush(self.log)
        self.partition.high_watermark = self.good.log_end_offset

    # --- actions

    def of(self, text: str) -> Any:
        return int(text) if text else None

    def _sent(self, append: Callable[[Any], object], *, alone: bool = False) -> bool:
        """Append at the leader, and copy that to the other one; return False if it was refused for now."""
        if self.leader == GOOD:
            append(self.good)
            self._flush(self.good)
            self._copy()
            return True
        before = self.log.log_end_offset
        try:
            self.local.check_producers_known(self.partition)
            append(self.log)
        except ApiError as error:
            if error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
                return False
            raise
        self._flush(self.log)
        if alone:
            return False
        if self.log.log_end_offset > before:
            self.good.append_replicated(memoryview(bytes_of(self.log, before)), now_ms=0)
        self.partition.high_watermark = self.log.log_end_offset
        return True

    def _append(self, client: Client, sequence: int, *, alone: bool = False) -> bool:
        records = memoryview(bytearray(client.batch(sequence)))
        origin = AppendOrigin.TRANSACTION if client.producer_id == TRANSACTIONAL else AppendOrigin.CLIENT
        epoch = self.epoch
        try:
            return self._sent(lambda log: log.append(records, leader_epoch=epoch, now_ms=0, origin=origin), alone=alone)
        except ApiError as error:
            raise BrokenPromise(f"sequence {sequence} of {client.producer_id}: {error.code.name}") from None

    def _has_alone(self) -> bool:
        return self.leader == ROTTEN and self.log.log_end_offset > self.good.log_end_offset

    def send(self, producer: int) -> bool:
        client = self.clients[producer]
        if client.decision is not None or self._has_alone():
            return False
        client.is_open |= producer == TRANSACTIONAL
        client.is_pending = not self._append(client, client.next)
        client.next += not client.is_pending
        return True

    def send_alone(self, producer: int) -> bool:
        """Replica 2 does not get it before it is elected; the producer has no answer."""
        client = self.clients[producer]
        if client.decision is not None or self.leader == GOOD or self._has_alone():
            return False
        client.is_open |= producer == TRANSACTIONAL
        self._append(client, client.next, alone=True)
        client.is_pending = True
        return True

    def again(self, producer: int) -> bool:
        """Lose the answer to the newest batch."""
        client = self.clients[producer]
        if not client.next or client.is_pending or self._has_alone():
            return False
        if producer == TRANSACTIONAL and not client.is_open:
            return False
        end = self.good.log_end_offset
        if self._append(client, client.next - 1) and self.good.log_end_offset > end:
            raise BrokenPromise(f"sequence {client.next - 1} of {producer} is appended twice")
        return True

    def commit(self, _: object) -> bool:
        return self._end(committed=True)

    def abort(self, _: object) -> bool:
        return self._end(committed=False)

    def _end(self, *, committed: bool) -> bool:
        client = self.clients[TRANSACTIONAL]
        if not client.is_open or client.is_pending or client.decision not in (None, committed) or self._has_alone():
            return False
        epoch, client.decision = self.epoch, committed
        if self._sent(lambda log: log.append_marker(TRANSACTIONAL, 0, committed, 0, leader_epoch=epoch, now_ms=0)):
            client.decision, client.is_open = None, False
        return True

    def rot(self, at: int) -> bool:
        """Change a byte of the batch with number `at // 3`."""
        number, kind = divmod(at, 3)
        place = self._place(number)
        if place is None or number in self.rotten:
            return False
        data, position, size = place
        byte = (_HEADER_BYTE, size + _CONTENT_BYTE, _LENGTH_BYTE)[kind]
        data[position + byte] ^= 1
        self.rotten.add(number)
        return True

    def _place(self, offset: int) -> tuple[bytearray, int, int] | None:
        """Return the file of an offset, and where its batch is: every batch has one record."""
        for segment in reversed(self.log.segments):
            if segment.base_offset <= offset < self.log.log_end_offset:
                position = 0
                for number in range(segment.base_offset, offset):
                    position += len(self._good_batch(number))
                names: Any = segment
                data = self.disk.folders["t-0"][names.names[0]].data
                return data, position, len(self._good_batch(offset))
        return None

    def _good_batch(self, offset: int) -> bytes:
        log = self.good if offset < self.good.log_end_offset else self.log
        content = bytes_of(log, offset, max_bytes=1)
        return content[: parse_header(content).size]

    def roll(self, _: object) -> bool:
        if not self.log.segments[-1].size:
            return False
        self.log.roll(0)
        self._flush(self.log)
        return True

    def kill(self, _: object) -> bool:
        """Replica 1 is killed, and starts again behind replica 2."""
        self._restart(is_clean=False)
        return True

    def stop(self, _: object) -> bool:
        self._restart(is_clean=True)
        return True

    def _restart(self, *, is_clean: bool) -> None:
        end = self.log.recovery_point
        if is_clean:
            self.log.close()
        else:
            self.log.abandon()
        self.leader, self.epoch = GOOD, self.epoch + 1
        self._open(recover=not is_clean, recovery_point=end)
        self._follow()

    def elect(self, _: object) -> bool:
        if self.leader == ROTTEN:
            self._lead(GOOD)
            self._follow()
        else:
            self._lead(ROTTEN)
        return True

    def repair(self, _: object) -> bool:
        if not self.rotten or self._has_alone():
            return False
        self._begin_repair()
        self.scheduler.advance(60_000)
        self._forget_rot()
        return True

    def _begin_repair(self) -> None:
        for segment in self.log.segments:
            if segment.size:
                self.scrubber.check_soon(self.log, segment.base_offset)
        for offset in self.log.hidden_producers_at:
            self.scrubber.check_soon(self.log, offset)

    def _forget_rot(self) -> None:
        def is_intact(offset: int) -> bool:
            with suppress(ApiError):
                content = bytes_of(self.log, offset, max_bytes=1)
                return content[: parse_header(content).size] == self._good_batch(offset)
            return False

        self.rotten = {each for each in self.rotten if not is_intact(each)}

    def repair_killed(self, turns: int) -> bool:
        """Kill the repair after some turns."""
        if not self.rotten or self._has_alone():
            return False
        self._begin_repair()
        left = iter(range(turns))
        try:
            self.scheduler.run_until(lambda: next(left, None) is None)
        except TimeoutError:
            return False
        self._restart(is_clean=False)
        self._forget_rot()
        return True

    # --- promises

    def note(self) -> None:
        return

    def check(self) -> None:
        self._check_good_copy()
        self._check_rotten_copy()
        self._check_committed()

    def _batches(self, log: UnifiedLog) -> dict[int, bytes]:
        """Return the readable batches by their offsets."""
        found: dict[int, bytes] = {}
        for offset in range(log.log_end_offset):
            with suppress(ApiError):
                content = bytes_of(log, offset, max_bytes=1)
                header = parse_header(content)
                if header.base_offset == offset:
                    found[offset] = content[: header.size]
        return found

    def _check_good_copy(self) -> None:
        seen: set[tuple[int, int]] = set()
        for offset, content in self._batches(self.good).items():
            header = parse_header(content)
            if header.control:
                continue
            if (header.producer_id, header.base_sequence) in seen:
                raise BrokenPromise(f"sequence {header.base_sequence} of {header.producer_id} again at {offset}")
            seen.add((header.producer_id, header.base_sequence))
        for client in self.clients.values():
            for sequence in range(client.next):
                if (client.producer_id, sequence) not in seen:
                    raise BrokenPromise(f"sequence {sequence} of {client.producer_id} is lost")

    def _check_rotten_copy(self) -> None:
        good = self._batches(self.good)
        for offset, content in self._batches(self.log).items():
            if offset in good and content != good[offset] and offset not in self.rotten:
                raise BrokenPromise(f"another batch at {offset}")
        if self.log.log_end_offset < self.good.log_end_offset:
            raise BrokenPromise(f"replica 1 ends at {self.log.log_end_offset}")
        missing = set(good) - set(self._batches(self.log)) - self.rotten
        if missing:
            raise BrokenPromise(f"replica 1 does not give {sorted(missing)}")

    def _decisions(self) -> dict[int, bool]:
        """Return by offset whether the transaction of a batch was committed."""
        found: dict[int, bool] = {}
        open_: list[int] = []
        for offset, content in self._batches(self.good).items():
            header = parse_header(content)
            if header.producer_id != TRANSACTIONAL:
                continue
            if header.control:
                found |= dict.fromkeys(open_, _commits(content, header))
                open_.clear()
            else:
                open_.append(offset)
        return found

    def _check_committed(self) -> None:
        decided = self._decisions()
        for start in range(self.partition.last_stable_offset):
            given = self._given(start)
            for offset, is_given in given.items():
                if is_given and not decided.get(offset, False):
                    raise BrokenPromise(f"offset {offset} is given to readers from {start}, and is not committed")
                if not is_given and decided.get(offset, True):
                    raise BrokenPromise(f"offset {offset} is hidden from readers from {start}")

    def _given(self, start: int) -> dict[int, bool]:
        """Return the transactional batches of one read, and whether a reader of committed records gives them."""
        try:
            records, aborted = self.partition.read_committed(start, 1 << 20, whole_first_batch=True)
        except ApiError:
            return {}
        content: Any = records if isinstance(records, bytes) else records.read()  # type: ignore[union-attr]
        waiting = sorted((each.first_offset, each.producer_id) for each in aborted)
        active: set[int] = set()
        found: dict[int, bool] = {}
        for position, header in whole_batches(content):
            if not is_crc_valid(content, header, position):
                break  # a reader ends with an error
            while waiting and waiting[0][0] <= header.last_offset:
                active.add(waiting.pop(0)[1])
            if header.control:
                if not _commits(content[position:], header):
                    active.discard(header.producer_id)
            elif header.producer_id == TRANSACTIONAL:
                found[header.base_offset] = header.producer_id not in active
        return found

    # --- the end

    @property
    def may_quiesce(self) -> bool:
        return True

    @property
    def quiesces_in_motion(self) -> bool:
        return True

    def rest(self) -> None:
        """Elect replica 1, if it follows, and repair it."""
        if self.leader == GOOD:
            self.elect(None)
        if self._has_alone():
            self.elect(None)
            self.elect(None)
        self._begin_repair()
        self.scheduler.advance(600_000)
        self._forget_rot()

    def quiesce(self) -> None:
        self.rest()
        self.check()
        if self.rotten or self._batches(self.log) != self._batches(self.good):
            raise BrokenPromise(f"not repaired: {sorted(self.rotten)}")
        if self.log.hidden_producers_at:
            raise BrokenPromise(f"producers are hidden at {self.log.hidden_producers_at} for ever")
        for client in self.clients.values():
            if client.decision is not None:
                self._end(committed=client.decision)
                if client.decision is not None:
                    raise BrokenPromise("a marker is refused for ever")
            if client.next and not client.is_pending and (client.is_open or client.producer_id == IDEMPOTENT):
                self.again(client.producer_id)
            sent = client.next
            self.send(client.producer_id)
            if client.next != sent + 1:
                raise BrokenPromise(f"{client.producer_id} is refused for ever")
        self._end(committed=False)
        self.check()
        if self.partition.last_stable_offset != self.log.log_end_offset:
            raise BrokenPromise(f"readers do not get past {self.partition.last_stable_offset}")
        self._restart(is_clean=False)
        self.check()
        if self.partition.last_stable_offset != self.log.log_end_offset:
            raise BrokenPromise(f"after a restart readers do not get past {self.partition.last_stable_offset}")

    def fingerprint(self) -> str:
        log, producers = self.log, self.log.producers
        known = [
            (number, each.epoch, each.last_sequence, each.batches, each.txn_first_offset)
            for number, each in sorted(producers.producers.items())
        ]
        files = sorted((name, bytes(each.data)) for name, each in self.disk.folders["t-0"].items())
        clients = [(each.next, each.is_pending, each.decision, each.is_open) for each in self.clients.values()]
        gaps = [getattr(each, "gaps", ()) for each in log.segments]
        return repr(
            (
                hash(tuple(files)),
                self.good.log_end_offset,
                self.leader,
                known,
                log.hidden_producers_at,
                log.transactions.undecided_from,
                gaps,
                clients,
                sorted(self.rotten),
                self.used if self.scope.most else (),
            )
        )


def _commits(content: bytes, header: BatchHeader) -> bool:
    marker = read_marker(content, header)
    return marker is not None and marker.committed


def _fail(error: Exception) -> None:
    raise AssertionError(error)


def search(scope: Scope) -> int:
    """Play every history of the scope; return the number of states. Raises `BrokenPromise`."""
    producers = (IDEMPOTENT, TRANSACTIONAL)
    actions: list[tuple[str, Any]] = []
    for name in ("send", "send_alone", "again"):
        actions += [(name, each) for each in producers]
    for name in ("commit", "abort", "roll", "kill", "stop", "elect", "repair"):
        actions.append((name, None))
    actions += [("rot", 3 * number + kind) for number in range(scope.rots) for kind in range(scope.kinds)]
    actions += [("repair_killed", turns) for turns in range(1, 40)]
    return search_histories(History, scope, [each for each in actions if scope.most.get(each[0], 0)])
