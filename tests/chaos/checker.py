"""Anomalies that a history must not contain, by the names of Jepsen for logs.

Every producer here is idempotent and waits for acks=all, and min.insync.replicas is 2 of 3: acknowledged messages
stay, once and in order, whatever happens to one broker at a time.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

from attrs import frozen
from chaos.history import ACKNOWLEDGED, History, Poll, Share

EXAMPLES = 10

KINDS = {
    "lost-write": "a message was acknowledged, or read, and is not there in the end",
    "duplicate": "a message stands at several offsets",
    "inconsistent-offsets": "different messages were seen at one offset",
    "nonmonotonic-send": "a producer's later message stands before its earlier one",
    "nonmonotonic-poll": "a consumer was given an offset that is not behind the one before",
    "poll-skip": "a consumer that read on was not given a message in between",
    "group-skip": "a group was never given a message",
    "unexpected-value": "a message that was never sent, or was refused",
    "producer-broken": "an idempotent producer got the error that earlier messages are missing",
    "position-lost": "a consumer's position was out of range, or a group's is beyond the end",
    "position-back": "a group went on before a position that its coordinator had acknowledged",
    "partial-transaction": "only some messages of a transaction can be read",
    "output-wrong": "a message of the source was transformed twice, or never",
    "aborted-read": "a read_committed reader was given something else than what is committed",
    "client-stuck": "a client does not end though the cluster is healthy, or has died",
    "offsets-apart": "the committed offsets of a transactional group and its output are apart",
    "offset-of-deleted-topic": "a message of a topic in another one of its name, or a group at an offset of that one",
    "accepted-twice": "a message of a share group was accepted, and accepted again",
    "share-skip": "a share group was never given a message",
    "diverging-replicas": "two replicas have different batches at one offset",
}


@frozen
class Anomaly:
    kind: str
    text: str


@frozen
class Verdict:
    counts: Mapping[str, int]
    """The number of anomalies of each kind."""
    examples: Mapping[str, list[str]]
    """The first `EXAMPLES` of each."""

    @property
    def clean(self) -> bool:
        return not self.counts


def check(history: History) -> Verdict:
    """Look at all of it."""
    counts: Counter[str] = Counter()
    examples: dict[str, list[str]] = defaultdict(list)
    looks = (
        _lost,
        _duplicates,
        _inconsistent,
        _send_order,
        _broken,
        _polls,
        _groups,
        _unexpected,
        _positions,
        _going_on,
        _transactional,
        _shares,
        _replicas,
    )
    for look in looks:
        for anomaly in look(history):
            counts[anomaly.kind] += 1
            if len(examples[anomaly.kind]) < EXAMPLES:
                examples[anomaly.kind].append(anomaly.text)
    return Verdict(dict(counts), dict(examples))


def _lost(history: History) -> Iterator[Anomaly]:
    there = {(p, offset): value for p, messages in history.final.items() for offset, value in messages}
    values = {(p, value) for (p, _), value in there.items()}
    for send in history.sends:
        if send.outcome == ACKNOWLEDGED and (send.partition, send.value) not in values:
            text = f"{send.value} was acknowledged at {send.done_s:.2f} s with offset {send.offset}"
            yield Anomaly("lost-write", f"{text} of partition {send.partition}")
    for poll in history.polls:
        if (poll.partition, poll.offset) not in there:
            text = f"{poll.value} was read by {poll.client} at {poll.at_s:.2f} s, offset {poll.offset}"
            yield Anomaly("lost-write", f"{text} of partition {poll.partition}")


def _duplicates(history: History) -> Iterator[Anomaly]:
    places = defaultdict(list)
    for partition, messages in history.final.items():
        for offset, value in messages:
            places[value].append((partition, offset))
    for value, found in places.items():
        if len(found) > 1:
            yield Anomaly("duplicate", f"{value} is at {', '.join(f'{p}:{offset}' for p, offset in found)}")


def _inconsistent(history: History) -> Iterator[Anomaly]:
    seen: dict[tuple[int, int], set[str]] = defaultdict(set)
    for partition, messages in history.final.items():
        for offset, value in messages:
            seen[partition, offset].add(value)
    for poll in history.polls:
        seen[poll.partition, poll.offset].add(poll.value)
    for send in history.sends:
        if send.outcome == ACKNOWLEDGED and send.offset >= 0:
            seen[send.partition, send.offset].add(send.value)
    for (partition, offset), values in seen.items():
        if len(values) > 1:
            yield Anomaly(
                "inconsistent-offsets", f"partition {partition}, offset {offset}: {', '.join(sorted(values))}"
            )


def _send_order(history: History) -> Iterator[Anomaly]:
    sent = defaultdict(list)
    for send in history.sends:
        if send.outcome == ACKNOWLEDGED and send.offset >= 0:
            sent[send.client, send.partition].append((send.sequence, send.offset))
    for (client, partition), placed in sent.items():
        for (first, before), (second, after) in pairwise(sorted(placed)):
            if after <= before:
                text = f"{client}: message {first} at {before}, then {second} at {after} of partition {partition}"
                yield Anomaly("nonmonotonic-send", text)


def _broken(history: History) -> Iterator[Anomaly]:
    for text in history.broken:
        yield Anomaly("producer-broken", text)


def _polls(history: History) -> Iterator[Anomaly]:
    sessions: dict[tuple[str, int, int], list[Poll]] = defaultdict(list)
    for poll in history.polls:
        sessions[poll.client, poll.session, poll.partition].append(poll)
    offsets = {partition: [offset for offset, _ in messages] for partition, messages in history.final.items()}
    index = {partition: {offset: at for at, offset in enumerate(held)} for partition, held in offsets.items()}
    for (client, _, partition), polls in sessions.items():
        for one, two in pairwise(polls):
            where = f"{client} at {two.at_s:.2f} s: {one.offset}, then {two.offset} of partition {partition}"
            if two.offset <= one.offset:
                yield Anomaly("nonmonotonic-poll", where)
                continue
            places = index.get(partition, {})
            between = places.get(two.offset, 0) - places.get(one.offset, 0) - 1
            if two.offset in places and one.offset in places and between > 0:
                yield Anomaly("poll-skip", f"{where}; {between} messages between")


def _groups(history: History) -> Iterator[Anomaly]:
    """Once it has come to the end, a reader has been given all."""
    given: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for poll in history.polls:
        given[history.groups.get(poll.client, poll.client)].add((poll.partition, poll.offset))
    for reader in sorted(history.drained):
        for partition, messages in sorted(history.final.items()):
            for offset, value in messages:
                if (partition, offset) not in given[reader]:
                    yield Anomaly(
                        "group-skip", f"{reader} was not given {value}, offset {offset} of partition {partition}"
                    )


def _unexpected(history: History) -> Iterator[Anomaly]:
    outcomes = {send.value: send.outcome for send in history.sends}
    for partition, messages in history.final.items():
        for offset, value in messages:
            if value not in outcomes:
                yield Anomaly(
                    "unexpected-value", f"{value} at offset {offset} of partition {partition}: it was never sent"
                )
            elif outcomes[value] == "refused":
                yield Anomaly("unexpected-value", f"{value} at offset {offset} of partition {partition} was refused")


def _positions(history: History) -> Iterator[Anomaly]:
    for text in history.resets:
        yield Anomaly("position-lost", text)
    ends = {partition: messages[-1][0] + 1 for partition, messages in history.final.items() if messages}
    for commit in history.commits:
        if commit.offset > ends.get(commit.partition, 0):
            where = f"partition {commit.partition}, which ends at {ends.get(commit.partition, 0)}"
            yield Anomaly("position-lost", f"{commit.group} committed {commit.offset} of {where}")


def _going_on(history: History) -> Iterator[Anomaly]:
    """Find sessions that do not begin at the group's committed offset, by commits of earlier generations."""
    begun: dict[tuple[str, int, int], Poll] = {}
    for poll in history.polls:
        begun.setdefault((poll.client, poll.session, poll.partition), poll)
    commits = defaultdict(list)
    for commit in history.commits:
        commits[commit.group, commit.partition].append(commit)
    for (client, _, partition), poll in begun.items():
        group = history.groups.get(client, "")
        before = [commit.offset for commit in commits[group, partition] if commit.at_s <= poll.at_s]
        if before and poll.offset < max(before):
            text = f"{client} at {poll.at_s:.2f} s: offset {poll.offset} of partition {partition}"
            yield Anomaly("position-back", f"{text}, of which {max(before)} was committed")


def _transactional(history: History) -> Iterator[Anomaly]:
    yield from (Anomaly(kind, text) for kind, text in dict.fromkeys(history.transactional))


def _shares(history: History) -> Iterator[Anomaly]:
    accepted: dict[tuple[int, int], Share] = {}
    given = {(share.partition, share.offset) for share in history.shares}
    for share in history.shares:
        if not share.is_accepted:
            continue
        first = accepted.setdefault((share.partition, share.offset), share)
        if first is not share:
            text = f"offset {share.offset} of partition {share.partition} by {first.client} at {first.at_s:.2f} s"
            yield Anomaly("accepted-twice", f"{text}, and by {share.client} at {share.at_s:.2f} s")
    if not history.is_shared:
        return
    for partition, messages in sorted(history.final.items()):
        for offset, value in messages:
            if (partition, offset) not in given:
                yield Anomaly("share-skip", f"{value}, offset {offset} of partition {partition}")


def _replicas(history: History) -> Iterator[Anomaly]:
    for folder, logs in sorted(history.replicas.items()):
        filled = {broker: batches for broker, batches in sorted(logs.items()) if batches}
        if len(filled) < 2:
            continue
        start = max(batches[0][0] for batches in filled.values())
        end = min(batches[-1][0] for batches in filled.values())
        common = {b: [batch for batch in batches if start <= batch[0] <= end] for b, batches in filled.items()}
        first = next(iter(common.values()))
        for broker, mine in common.items():
            if mine != first:
                other = next((one, two) for one, two in zip([*first, None], [*mine, None], strict=False) if one != two)
                yield Anomaly("diverging-replicas", f"{folder} on broker {broker}: {other[1]}, elsewhere {other[0]}")
