"""Every interleaving of small scopes over the tier of one partition (`support/tiering_search.py`).

The counts of states are printed: `pytest -s`, or `-rA`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from attrs import evolve
from support.history_search import BrokenPromise, play_history
from support.long_tests import first_is_quick
from support.tiering_search import FOLDER, KEY, RECORD_BYTES, History, Scope, _Store, search

from barnabas.app.broker.state import tiering
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.replica.follower.fetcher import PartitionDataProcessor
from barnabas.core.replica.partition.local_partitions import LocalPartitions
from barnabas.core.tiering import manifest as manifests
from barnabas.core.tiering import remote_log_manager
from barnabas.core.tiering.manifest import Manifest, RemoteSegment, SegmentState
from barnabas.core.tiering.remote_log_manager import RemoteLogManager

_OTHER_BRANCH = ("rest", "kill 2", "append", "append", "rest", "kill 1", "start 2")
"""Broker 2 lacks two records, one of which is in a copied segment, and broker 1, which has them, is gone."""

COPY = Scope({})
CALL_FAILS = Scope({"fail": 1})
ANSWER_IS_LOST = Scope({"lose": 1})
DIES = Scope({"kill": 1, "start": 1})
UNCLEAN = Scope({"elect_uncleanly": 1, "append": 2}, before=_OTHER_BRANCH)
UNCLEAN_BELOW_START = Scope({"elect_uncleanly": 1, "append": 1}, before=_OTHER_BRANCH, retained=1)
DELETED = Scope({"delete_topic": 1})
EXPIRES = Scope({}, before=("append", "rest", "append"), retained=2)
EXPIRY_FAILS = Scope({"fail": 1}, before=EXPIRES.before, retained=2)
OTHER_LEADER = Scope({"elect": 1}, before=("rest", "append"))
_NEW_FOLLOWER = ("rest", "kill 2", "lose_disk 2", "append", "rest", "start 2")
"""Broker 2 has lost its disk; broker 1 has copied all records but the last, and still has them all."""
BEGINS_IN_TIER = Scope({"elect": 1}, before=_NEW_FOLLOWER, local=100, begins_in_tier=True)
ANSWERED_TWICE = Scope({"follow_again": 1, "elect": 1}, before=_NEW_FOLLOWER)
"""Two fetches of broker 2 are under way when it is to begin behind the tier."""
_DAMAGED = ("rest", "kill 1", "damage 1", "start 1", "rest", "elect 1", "rest", "append")
"""Broker 1 leads. Damage hides a producer from it in a segment that it had copied."""
HIDES_PRODUCERS = Scope({"repair": 1}, before=_DAMAGED, local=100)
_BEHIND_LOCAL_RETENTION = (
    "rest",
    "kill 1",
    "damage 1",
    "start 1",
    "rest",
    "append",
    "rest",
    "kill 1",
    "start 1",
    "rest",
)
"""Broker 1 follows. Damage hides a producer from it in a segment that the leader has copied and deleted."""
IS_ELECTED_WITH_DAMAGE = Scope({"elect": 1}, before=_BEHIND_LOCAL_RETENTION, local=2)
SCOPES = {
    "copy": COPY,
    "call_that_fails": CALL_FAILS,
    "lost_answer": ANSWER_IS_LOST,
    "unclean_election": UNCLEAN,
    "unclean_election_below_the_start": UNCLEAN_BELOW_START,
    "expiry": EXPIRES,
    "expiry_that_fails": EXPIRY_FAILS,
    "deleted_topic": DELETED,
    "second_answer_during_a_rebuild": ANSWERED_TWICE,
    "damage_that_hides_producers": HIDES_PRODUCERS,
    "damage_in_what_local_retention_would_delete": IS_ELECTED_WITH_DAMAGE,
    "killed": DIES,
    "effect_that_is_late": Scope({"delay": 1}),
    "second_object_that_is_late": Scope({"delay_second": 1}),
    "expiry_that_is_late": Scope({"delay": 1}, before=EXPIRES.before, retained=2),
    "deleted_records": Scope({"delete_records": 1}, appended=3),
    "deleted_topic_and_lost_answer": Scope({"delete_topic": 1, "lose": 1}),
    "deleted_topic_and_all_brokers_killed": Scope({"kill": 2, "delay": 1}, before=("rest", "append", "delete_topic")),
    "one_of_two_objects_and_killed": Scope({"fail_second": 1, "kill": 1, "start": 1}),
    "another_leader": OTHER_LEADER,
    "new_follower_begins_in_the_tier": BEGINS_IN_TIER,
    "new_follower_and_a_call_that_fails": Scope({"fail": 1}, before=_NEW_FOLLOWER, local=100, begins_in_tier=True),
    "new_follower_killed": Scope({"kill": 1, "start": 1}, before=_NEW_FOLLOWER, local=100, begins_in_tier=True),
}


@pytest.mark.parametrize(("name", "scope"), first_is_quick(SCOPES.items(), 3))
def test_no_history_loses_a_record_of_a_tiered_partition(name: str, scope: Scope) -> None:
    print(f"{name}: {search(scope)} states")


@pytest.mark.parametrize("begins_in_tier", [False, True])
def test_new_follower_copies_only_what_is_not_in_the_tier(*, begins_in_tier: bool) -> None:
    scope = evolve(BEGINS_IN_TIER, before=(*_NEW_FOLLOWER, "rest"), begins_in_tier=begins_in_tier)
    history = play_history(History, scope)
    leader, follower = (history.brokers[number].log for number in (1, 2))
    assert (leader.local_log_start_offset, follower.log_start_offset) == (0, 0)
    assert (follower.local_log_start_offset, follower.log_end_offset) == (2 if begins_in_tier else 0, 3)
    assert history.state.isr == (1, 2)


def test_follower_that_has_waited_for_a_repair_waits_again_as_a_leader() -> None:
    history = play_history(History, IS_ELECTED_WITH_DAMAGE)
    it = history.brokers[1]
    assert it.local.awaits_producers(it.partition)
    history.clock.advance(131_000)
    assert not it.local.awaits_producers(it.partition), "local retention waits no longer"
    assert history.elect(1)
    it.see()
    assert it.local.awaits_producers(it.partition)
    history.clock.advance(131_000)
    assert not it.local.awaits_producers(it.partition)


def fences_no_earlier_leader(patch: pytest.MonkeyPatch) -> None:
    def replace(self: _Store, key: str, content: Any, _version: str | None) -> str:
        self._write(partial(self.inner.put, key, bytes(content)))
        return self.inner.read(key).version

    patch.setattr(_Store, "replace", replace)


def offers_a_segment_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    def start(manifest: Manifest, segment: RemoteSegment) -> Manifest:
        begun = manifests.start_copy(manifest, segment)
        return manifests.finish_copy(begun, segment.segment_id, begun.epochs)

    patch.setattr(remote_log_manager, "start_copy", start)


def deletes_objects_before_the_manifest_says_so(patch: pytest.MonkeyPatch) -> None:
    expire = RemoteLogManager._expire

    def deletes_first(self: RemoteLogManager, leading: Any) -> Any:
        readable = leading.mine.readable
        if sum(each.size for each in readable) >= leading.led.log.config.retention_bytes:
            yield partial(self._delete, leading.folder, readable[0])
            self._check(leading)
        yield from expire(self, leading)

    patch.setattr(RemoteLogManager, "_expire", deletes_first)


def believes_an_unfinished_copy(patch: pytest.MonkeyPatch) -> None:
    def given_up(segment: RemoteSegment) -> RemoteSegment:
        started = segment.state is SegmentState.COPY_STARTED
        return evolve(segment, state=SegmentState.COPY_FINISHED) if started else segment

    patch.setattr(manifests, "_given_up", given_up)


def deletes_local_segments_that_are_not_copied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Manifest, "covered_to", lambda _self, offset: offset + 1)


def expires_one_segment_too_many(patch: pytest.MonkeyPatch) -> None:
    expired = manifests.expired_start

    def start(manifest: Manifest, *, retention_bytes: int, **rest: Any) -> int:
        return expired(manifest, retention_bytes=max(0, retention_bytes - RECORD_BYTES), **rest)

    patch.setattr(remote_log_manager, "expired_start", start)


def forgets_segments_before_their_objects_are_deleted(patch: pytest.MonkeyPatch) -> None:
    def delete_marked(self: RemoteLogManager, leading: Any) -> Any:
        marked = leading.mine.in_state(SegmentState.DELETE_STARTED)
        ids = [each.segment_id for each in marked]
        if marked:
            yield from self._update(leading, lambda manifest: manifests.drop_deleted(manifest, ids))
        for each in marked:
            yield partial(self._delete, leading.folder, each)
            self._check(leading)

    patch.setattr(RemoteLogManager, "_delete_marked", delete_marked)


def stores_the_batches_only(patch: pytest.MonkeyPatch) -> None:
    def put(self: RemoteLogManager, folder: str, remote: RemoteSegment, batches: Any, _parts: Any) -> None:
        self._storage.put(manifests.log_key(folder, remote), batches)

    patch.setattr(RemoteLogManager, "_put", put)


def leaves_the_own_epoch_out_of_the_lineage(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(remote_log_manager, "_with_own_epoch", lambda lineage, _led: lineage)


def reads_all_branches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(manifests, "_is_of_lineage", lambda *_: True)


def continues_below_the_start_of_the_manifest(patch: pytest.MonkeyPatch) -> None:
    claim = manifests.claim
    patch.setattr(
        remote_log_manager,
        "claim",
        lambda *args, log_end, **named: claim(*args, log_end=1 << 60, **named),
    )


def leaves_the_manifest_of_a_deleted_topic(patch: pytest.MonkeyPatch) -> None:
    def delete(storage: Any, prefix: str) -> int:
        keys = [each.key for each in storage.list_objects(prefix) if FOLDER not in each.key or ".log" in each.key]
        for key in keys:
            storage.delete(key)
        return len(keys)

    patch.setattr(remote_log_manager, "delete_below", delete)


def begins_behind_what_is_copied(patch: pytest.MonkeyPatch) -> None:
    read = tiering.read_aux_state

    def read_further(*args: Any) -> Any:
        found = read(*args)
        return None if found is None else evolve(found, offset=found.offset + 1)

    patch.setattr(tiering, "read_aux_state", read_further)


def rebuilds_twice(patch: pytest.MonkeyPatch) -> None:
    process = PartitionDataProcessor.process_partition_data

    def processed(self: PartitionDataProcessor, followed: Any, result: Any) -> None:
        self._noting.pop(KEY, None)
        process(self, followed, result)

    patch.setattr(PartitionDataProcessor, "process_partition_data", processed)


def copies_although_producers_are_hidden(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LocalPartitions, "awaits_producers", lambda *_: False)


def deletes_local_segments_whose_producers_are_hidden(patch: pytest.MonkeyPatch) -> None:
    retain = UnifiedLog.retain
    patch.setattr(UnifiedLog, "retain", lambda *args, **_: retain(*args))


@pytest.mark.parametrize(
    ("mutate", "scope"),
    [
        (offers_a_segment_before_it_is_stored, COPY),
        (deletes_local_segments_that_are_not_copied, COPY),
        pytest.param(stores_the_batches_only, COPY, marks=pytest.mark.slow),
        (leaves_the_own_epoch_out_of_the_lineage, UNCLEAN),
        (reads_all_branches, UNCLEAN),
        (continues_below_the_start_of_the_manifest, UNCLEAN_BELOW_START),
        (leaves_the_manifest_of_a_deleted_topic, DELETED),
        (deletes_objects_before_the_manifest_says_so, EXPIRES),
        (expires_one_segment_too_many, EXPIRES),
        (begins_behind_what_is_copied, BEGINS_IN_TIER),
        pytest.param(rebuilds_twice, ANSWERED_TWICE, marks=pytest.mark.slow),
        (copies_although_producers_are_hidden, HIDES_PRODUCERS),
        (deletes_local_segments_whose_producers_are_hidden, IS_ELECTED_WITH_DAMAGE),
        pytest.param(believes_an_unfinished_copy, DIES, marks=pytest.mark.slow),
        pytest.param(forgets_segments_before_their_objects_are_deleted, EXPIRY_FAILS, marks=pytest.mark.slow),
        pytest.param(fences_no_earlier_leader, OTHER_LEADER, marks=pytest.mark.slow),
    ],
)
def test_search_of_the_tier_finds_a_broken_promise_after_each_mutation(
    mutate: Callable[[pytest.MonkeyPatch], None], scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    with pytest.raises(BrokenPromise) as found:
        search(scope)
    print(found.value)
