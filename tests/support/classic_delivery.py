"""The guarantees of a group to its application, checked by the notes of its members and the final logs."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf

from attrs import define, field
from support.classic_cluster import ConsumerProcess, Event, Partition

Log = Sequence[tuple[int, str]]
"""Next offset and value of each message."""
LEARNING_S = 1.0
"""Between hearing that the session has ended and giving up everything."""


@define(eq=False)
class Stint:
    """A member's time with a partition."""

    member: ConsumerProcess
    partition: Partition
    begin: float
    end: float = inf
    given_up_at: int | None = None
    """The next offset, as the member committed it."""
    messages: list[Event] = field(factory=list)

    @property
    def last(self) -> int:
        """The next offset after what was handed out."""
        return self.messages[-1].offset or 0 if self.messages else -1

    @property
    def expired(self) -> bool:
        """True if it ended since the session had: until it learnt that, the member could not know of another owner."""
        return any(self.begin - LEARNING_S <= at <= self.end <= at + LEARNING_S for at in self.member.expired)


def stints(member: ConsumerProcess) -> list[Stint]:
    """Return all stints of one member in order. Checks that every message is of an owned partition."""
    found: list[Stint] = []
    current: dict[Partition, Stint] = {}
    before: dict[Partition, Stint] = {}
    for event in member.events:
        if event.what == "take":
            assert event.partition not in current, (member.consumer_id, event)
            current[event.partition] = Stint(member, event.partition, event.at)
            found.append(current[event.partition])
        elif event.what == "give":
            ended = current.pop(event.partition)
            ended.end, ended.given_up_at = event.at, event.offset
            before[event.partition] = ended
        elif event.what == "message":
            _place(member, event, current.get(event.partition), before.get(event.partition))
    for stint in current.values():
        stint.end = member.killed_at or inf
    return found


def _place(member: ConsumerProcess, event: Event, current: Stint | None, before: Stint | None) -> None:
    """A message that was in the reader's hand while the partition was taken away is written down after that."""
    assert event.offset is not None
    late = before is not None and before.last < event.offset <= (before.given_up_at or -1)
    if late and before is not None and not (current and current.messages):
        before.messages.append(event)
        return
    assert current is not None, f"{member.consumer_id} handed out what it does not own: {event}"
    current.messages.append(event)


@define
class Verdict:
    """The figures of a group; what must not be is an assertion."""

    messages: int = 0
    handed_out: int = 0
    stints: int = 0
    samples: int = 0
    """The number of looks at the registries."""
    overlaps: int = 0
    """The number of partitions with a new owner while the old one could not know it yet."""
    longest_overlap_s: float = 0.0

    @property
    def duplicates(self) -> int:
        return self.handed_out - self.messages


@define
class Sample:
    """The owners (consumer ids) of a group's partitions, as they were read between two moments."""

    begin: float
    end: float
    owners: Mapping[Partition, str]


def judge(members: Iterable[ConsumerProcess], logs: Mapping[Partition, Log], samples: Iterable[Sample]) -> Verdict:
    """Check that every message in the logs was delivered, in order, without a gap, by one owner at a time."""
    verdict = Verdict()
    by_partition: dict[Partition, list[Stint]] = defaultdict(list)
    for member in members:
        for stint in stints(member):
            by_partition[stint.partition].append(stint)
    for partition, log in logs.items():
        found = sorted(by_partition[partition], key=lambda stint: stint.begin)
        verdict.messages += len(log)
        verdict.stints += len(found)
        _judge_order(found, log)
        _judge_delivery(partition, found, log)
        _judge_owners(found, verdict)
        verdict.handed_out += sum(len(stint.messages) for stint in found)
    for sample in samples:
        verdict.samples += 1
        for partition, owner in sample.owners.items():
            _judge_sample(sample, owner, by_partition[partition])
    return verdict


def _judge_order(found: Sequence[Stint], log: Log) -> None:
    """Each stint is a piece of the log."""
    numbers = {offset: number for number, (offset, _) in enumerate(log)}
    for stint in found:
        got = [(event.offset or 0, event.value) for event in stint.messages]
        if not got:
            continue
        where = f"{stint.member.consumer_id} {stint.partition}"
        assert got[0][0] in numbers, f"{where}: {got[0]} is not in the log"
        first = numbers[got[0][0]]
        assert got == list(log[first : first + len(got)]), f"{where}: gap or disorder after {got[0]}"
        if stint.given_up_at is not None:
            assert stint.given_up_at == stint.last, f"{where}: gave up at {stint.given_up_at}, handed out {stint.last}"


def _judge_delivery(partition: Partition, found: Sequence[Stint], log: Log) -> None:
    """Check one partition. A killed process may not have noted its last message: one at most."""
    got = {event.offset for stint in found for event in stint.messages}
    unwritten = 0
    for number, (offset, value) in enumerate(log):
        if offset in got:
            continue
        before = log[number - 1][0] if number else -1
        in_hand = any(stint.member.killed_at is not None and stint.last == before for stint in found)
        assert in_hand, f"{partition}: {value!r} (next offset {offset}) was not delivered"
        unwritten += 1
    assert unwritten <= sum(stint.member.killed_at is not None for stint in found)


def _judge_owners(found: Sequence[Stint], verdict: Verdict) -> None:
    for number, later in enumerate(found):
        for earlier in found[:number]:
            if earlier.end <= later.begin:
                continue
            text = f"{earlier.partition}: {earlier.member.consumer_id} had it {earlier.begin:.3f} to {earlier.end:.3f}"
            assert earlier.expired, f"{text}, {later.member.consumer_id} from {later.begin:.3f}"
            verdict.overlaps += 1
            verdict.longest_overlap_s = max(verdict.longest_overlap_s, min(earlier.end, later.end) - later.begin)


def _judge_sample(sample: Sample, owner: str, found: Sequence[Stint]) -> None:
    """Check that a member that is not the owner reads at the beginning or the end of a sample only."""
    for stint in found:
        member = stint.member
        if member.consumer_id == owner or not (stint.begin < sample.begin and sample.end < stint.end):
            continue
        assert stint.expired, (
            f"{stint.partition}: owned by {owner}, and read by {member.consumer_id} at {sample.begin:.3f}"
        )
