"""Share sessions, acknowledgements and membership of a share consumer, against brokers that follow a script."""

from typing import Any

import pytest
from support.plain_cluster import PlainCluster
from support.share_group_script import INTERVAL_MS
from support.share_member import LOCK_MS, Member

from barnabas.core.client.group.events import GroupSettings
from barnabas.core.client.share.acknowledgements import PartitionAcknowledgements
from barnabas.core.client.share.share_consume_request_manager import (
    ACKNOWLEDGE_WITHIN_MS,
    ShareInFlightBatch,
)
from barnabas.core.message.batch_header import CONTROL_BIT
from barnabas.core.message.corrupt_record import CorruptRecord
from barnabas.ports.broker_api.share_groups import (
    AcknowledgementBatch,
    AcknowledgeType,
    ShareAcknowledge,
    ShareFetch,
    ShareGroupHeartbeat,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.transport import TransportError
from barnabas.ports.types import TopicPartition

T0, T1 = (TopicPartition("t", number) for number in range(2))


def counts(batch: ShareInFlightBatch) -> list[tuple[int, int]]:
    return [(message.offset, message.delivery_count) for message in batch.messages]


# --- acknowledgements


@pytest.mark.parametrize(
    ("kinds", "batches"),
    [
        ({1: 1, 2: 1, 0: 1}, [(0, 2, b"\1")]),
        ({0: 1, 1: 2, 2: 1}, [(0, 2, b"\1\2\1")]),
        ({0: 1, 1: 1, 5: 2, 6: 1, 9: 3}, [(0, 1, b"\1"), (5, 6, b"\2\1"), (9, 9, b"\3")]),
        ({}, []),
    ],
)
def test_acknowledgements_become_batches_without_holes(kinds: dict[int, int], batches: list[Any]) -> None:
    assert PartitionAcknowledgements(T0, types=kinds).batches() == [AcknowledgementBatch(*each) for each in batches]


def test_processed_records_are_accepted_with_next_fetch() -> None:
    cluster = PlainCluster(t=1)
    member = Member(cluster).join()
    values = member.group.fill(T0, 3, 2)
    assert member.process(member.batch()) == values
    member.group.fill(T0, 1)
    member.batch()
    first, second = cluster.of(ShareFetch)
    assert first.share_session_epoch == 0
    assert not first.partitions[0].acknowledgement_batches
    assert second.share_session_epoch == 1
    assert second.partitions[0].acknowledgement_batches == [AcknowledgementBatch(0, 4, b"\1")]
    assert not cluster.of(ShareAcknowledge)
    assert member.group.state(T0).start_offset == 5
    assert list(member.manager.results) == [(T0, frozenset(range(5)), None)]


def test_session_lists_partitions_once_and_forgets_those_that_are_gone() -> None:
    cluster = PlainCluster(t=2)
    member = Member(cluster).join()
    member.group.fill(T0, 1)
    member.process(member.batch())
    member.manager.assign({tip: tp for tip, tp in member.manager.assigned.items() if tp == T1})
    member.group.fill(T1, 1)
    assert member.batch().tp == T1
    opened, *later = cluster.of(ShareFetch)
    assert [each.partition for each in opened.partitions] == [0, 1]
    assert [each.partition for request in later for each in request.forgotten] == [0]
    assert not any(each.acknowledgement_batches for request in later for each in request.partitions)
    assert [each.partition for each in cluster.of(ShareAcknowledge)[0].partitions] == [0]


def test_nothing_is_fetched_while_user_has_messages() -> None:
    cluster = PlainCluster(t=1)
    member = Member(cluster, max_poll_records=1).join()
    member.group.fill(T0, 1, 1, 1)
    batch = member.batch()
    member.clock.advance(20_000)
    member.run_until_idle()
    assert len(cluster.of(ShareFetch)) == 1
    assert counts(batch) == [(0, 1)]


def test_acknowledgements_of_slow_user_do_not_wait_for_its_next_fetch() -> None:
    cluster = PlainCluster(t=1)
    member = Member(cluster).join()
    member.group.fill(T0, 4)
    batch = member.batch()
    batch.handed_out, batch.processed = 3, 2
    began = member.now
    member.run(lambda: member.group.state(T0).start_offset == 2, limit_ms=2 * ACKNOWLEDGE_WITHIN_MS)
    assert member.now - began <= 2 * ACKNOWLEDGE_WITHIN_MS
    batch.handed_out = batch.processed = 4
    assert member.commit() == {T0: None}
    assert member.group.all_done(T0)


def test_released_records_come_again_and_rejected_ones_do_not() -> None:
    member = Member(PlainCluster(t=1), implicit=False).join()
    member.group.fill(T0, 4)
    batch = member.batch()
    assert counts(batch) == [(0, 1), (1, 1), (2, 1), (3, 1)]
    accept, release, reject = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
    member.acknowledge(batch, {0: accept, 1: release, 2: reject, 3: release})
    again = member.batch()
    assert counts(again) == [(1, 2), (3, 2)]
    member.acknowledge(again, {1: accept, 3: accept})
    assert member.commit() == {T0: None}
    assert member.group.all_done(T0)


def test_renewal_is_sent_at_once_and_lock_lasts() -> None:
    cluster = PlainCluster(t=1)
    member = Member(cluster, implicit=False).join()
    member.group.fill(T0, 1)
    batch = member.batch()
    for _ in range(4):
        member.clock.advance(LOCK_MS * 0.8)
        member.acknowledge(batch, {0: AcknowledgeType.RENEW})
        member.run_until_idle()
    assert [each.is_renew_ack for each in cluster.of(ShareAcknowledge)] == [True] * 4
    member.acknowledge(batch, {0: AcknowledgeType.ACCEPT})
    assert member.commit() == {T0: None}
    assert member.group.all_done(T0)


def test_lapsed_records_are_not_handed_out_and_late_acknowledgement_says_why() -> None:
    member = Member(PlainCluster(t=2), implicit=False).join()
    member.group.fill(T0, 1)
    member.group.fill(T1, 1)
    batch = member.batch()
    member.clock.advance(LOCK_MS + 1)
    member.run_until_idle()
    assert batch.has_lapsed
    assert member.manager.next_batch(member.now) is None
    member.acknowledge(batch, {0: AcknowledgeType.ACCEPT})
    assert counts(member.batch())[0][1] == 2
    _, _, error = member.manager.results[0]
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.INVALID_RECORD_STATE
    assert "share.record.lock.duration.ms" in str(error)


@pytest.mark.parametrize("broken", ["session", "connection"])
def test_lost_session_fails_acknowledgements_and_opens_another(broken: str) -> None:
    cluster = PlainCluster(t=1)
    member = Member(cluster).join()
    member.group.fill(T0, 2)
    member.process(member.batch())
    member.group.drop_sessions(1)
    if broken == "connection":
        cluster.once(ShareFetch, TransportError("it is gone"))
    assert counts(member.batch()) == [(0, 2), (1, 2)]
    _, offsets, error = member.manager.results[0]
    assert offsets == {0, 1}
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert [each.share_session_epoch for each in cluster.of(ShareFetch)] == [0, 1, 0]


def test_transient_error_of_acknowledgements_is_retried() -> None:
    member = Member(PlainCluster(t=1)).join()
    member.group.fill(T0, 2)
    member.process(member.batch())
    member.group.acknowledge_errors += [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert member.commit() == {T0: None}
    assert member.group.all_done(T0)


def test_leader_change_moves_fetches_and_fails_acknowledgements_to_old_leader() -> None:
    cluster = PlainCluster(brokers=2, t=1)
    member = Member(cluster, implicit=False).join()
    member.group.fill(T0, 2)
    batch = member.batch()
    member.group.move(T0, 2)
    member.acknowledge(batch, {0: AcknowledgeType.ACCEPT})
    (error,) = member.commit().values()
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert counts(member.batch()) == [(0, 2), (1, 2)]
    assert [broker for broker, request in cluster.requests if isinstance(request, ShareFetch)][-1] == 2


def test_finish_accepts_processed_records_and_releases_others() -> None:
    cluster = PlainCluster(t=1)
    member = Member(cluster).join()
    member.group.fill(T0, 5)
    batch = member.batch()
    batch.handed_out, batch.processed = 3, 2
    member.finish()
    assert cluster.of(ShareAcknowledge)[-1].share_session_epoch == -1
    other = Member(cluster, member.group).join()
    other.clock.advance_to(member.now)
    assert counts(other.batch()) == [(2, 2), (3, 2), (4, 2)]


def test_record_limit_reaches_leader() -> None:
    cluster = PlainCluster(t=1)
    member = Member(cluster, acquire_mode=1, max_poll_records=2).join()
    member.group.fill(T0, 5)
    assert counts(member.batch()) == [(0, 1), (1, 1)]
    (request,) = cluster.of(ShareFetch)
    assert (request.max_records, request.batch_size, request.share_acquire_mode) == (2, 2, 1)


@pytest.mark.parametrize(("byte", "bit"), [(-1, 1), (22, CONTROL_BIT)])
def test_damaged_batch_is_rejected_and_next_one_read(byte: int, bit: int) -> None:
    cluster = PlainCluster(t=1)
    member = Member(cluster).join()
    member.group.fill(T0, 2, 2)
    damaged = bytearray(cluster.logs[T0][0])
    damaged[byte] ^= bit
    cluster.logs[T0][0] = bytes(damaged)
    member.manager.wants = True
    member.run(lambda: bool(member.manager.ready))
    batch = member.manager.next_batch(member.now)
    assert batch is not None
    with pytest.raises(CorruptRecord, match="t-0 is damaged at offset 0"):
        batch.decode_more()
    assert batch.decode_more()
    assert not batch.decode_more()
    assert member.process(batch) == [b"2", b"3"]
    member.manager.wants = False
    assert member.commit() == {T0: None}
    assert member.group.all_done(T0)
    (sent,) = cluster.of(ShareAcknowledge)
    assert sent.partitions[0].acknowledgement_batches == [AcknowledgementBatch(0, 3, b"\3\3\1\1")]


def test_error_of_partition_is_raised_once_and_others_are_read() -> None:
    member = Member(PlainCluster(t=2)).join()
    member.group.fetch_errors[T0] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    member.group.fill(T1, 1)
    assert member.process(member.batch()) == [b"0"]
    (error,) = member.manager.failures
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


# --- membership


def test_member_joins_with_names_and_is_assigned_soon() -> None:
    cluster = PlainCluster(t=2)
    member = Member(cluster).join()
    first, second = cluster.of(ShareGroupHeartbeat)
    assert (first.member_epoch, first.subscribed_topic_names) == (0, ("t",))
    assert (second.member_epoch, second.subscribed_topic_names) == (2, None)
    assert len(first.member_id) == 22
    assert member.now < INTERVAL_MS / 2
    assert sorted(member.manager.assigned.values()) == [T0, T1]


def test_removed_member_joins_again_with_its_id() -> None:
    cluster = PlainCluster(t=1)
    member = Member(cluster).join()
    member.group.epochs.clear()
    member.run(lambda: bool(member.group.epochs))
    beats = cluster.of(ShareGroupHeartbeat)
    assert [each.member_epoch for each in beats[-2:]] == [2, 0]
    assert len({each.member_id for each in beats}) == 1
    member.run(lambda: member.membership.settled)


def test_user_that_asks_for_nothing_leaves_until_it_asks_again() -> None:
    cluster = PlainCluster(t=1)
    member = Member(cluster).join()
    member.run(lambda: not member.group.epochs, limit_ms=GroupSettings(group_id="g").max_poll_interval_ms + 1)
    assert not member.manager.assigned
    member.membership.polled(member.now)
    member.run(lambda: member.membership.settled)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (ErrorCode.UNSUPPORTED_VERSION, "share.version"),
        (ErrorCode.GROUP_ID_NOT_FOUND, "not a share group"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "group.share.max.size"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "READ of GROUP"),
    ],
)
def test_refused_member_says_what_to_do(code: ErrorCode, text: str) -> None:
    member = Member(PlainCluster(t=1))
    member.group.errors.append(code)
    member.membership.subscribe(("t",), member.now)
    member.run(lambda: bool(member.membership.failures))
    error = member.membership.failures.popleft()
    assert text in str(error)
    member.membership.polled(member.now)  # the user tries again
    member.run(lambda: member.membership.settled)


def test_leaving_member_says_so() -> None:
    cluster = PlainCluster(t=1)
    member = Member(cluster).join()
    done: list[object] = []
    member.membership.leave(lambda: done.append(1))
    member.run(lambda: bool(done))
    assert cluster.of(ShareGroupHeartbeat)[-1].member_epoch == -1
    assert not member.group.epochs
