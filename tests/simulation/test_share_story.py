"""Share groups between disasters; `make sim STORY=share` plays more of them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from simulation.cluster_mutations import Mutation, by_cost
from simulation.share_story import ShareStory

from barnabas.core.coordinator.group.share_group import ShareGroup
from barnabas.core.coordinator.share.coordinator import ShareCoordinator
from barnabas.core.coordinator.share.loading import ShareStateLoading
from barnabas.core.coordinator.share.persister import DefaultStatePersister
from barnabas.core.coordinator.share.records import UPDATE, decode_key
from barnabas.core.share.share_partition import InFlightBatch, SharePartition
from barnabas.ports.broker_api.share_state import StateOutcome, WriteShareGroupStateResult

KILLS = ("kill", "restart")


def test_share_story_holds_for_seed(seed: int) -> None:
    ShareStory(seed).play()


def acknowledges_before_the_state_is_stored(patch: pytest.MonkeyPatch) -> None:
    """The leader does not wait for its persister, which forgets."""

    def write_state(_self: object, request: Any, callback: Callable[[WriteShareGroupStateResult], None]) -> None:
        outcomes = [StateOutcome(each.topic_id, each.partition) for each in request.partitions]
        callback(WriteShareGroupStateResult(partitions=outcomes))

    patch.setattr(DefaultStatePersister, "write_state", write_state)


def loads_snapshots_alone(patch: pytest.MonkeyPatch) -> None:
    """A coordinator passes over the updates that came after a snapshot."""
    add = ShareStateLoading.add

    def only_snapshots(self: ShareStateLoading, key: bytes | None, value: bytes | None) -> None:
        if key is None or decode_key(key)[0] != UPDATE:
            add(self, key, value)

    patch.setattr(ShareStateLoading, "add", only_snapshots)


def forgets_that_a_record_was_delivered(patch: pytest.MonkeyPatch) -> None:
    """A released record is as good as new."""
    target = SharePartition._target

    def target_and_reset(self: SharePartition, batch: InFlightBatch, kind: Any) -> Any:
        state = target(self, batch, kind)
        if state == 0:
            batch.delivery_count = 0
        return state

    patch.setattr(SharePartition, "_target", target_and_reset)


def never_ends_a_lock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SharePartition, "release_lapsed", lambda *_: 0)
    patch.setattr(SharePartition, "release_acquired", lambda *_: 0)


def deletes_snapshots_that_are_needed(patch: pytest.MonkeyPatch) -> None:
    """The coordinator deletes all records, as if a snapshot came after them."""

    def prune(self: ShareCoordinator) -> Iterator[None]:
        for partition in self._table.loaded:
            self._delete_records(partition, self._log_end_offset(partition))
            yield

    patch.setattr(ShareCoordinator, "_prune", prune)


def begins_initialized_partitions_again(patch: pytest.MonkeyPatch) -> None:
    """A group coordinator that has read the log does not know which partitions have begun."""
    restored = ShareGroup.restored.__func__  # type: ignore[attr-defined]  # of a class method

    def loaded(cls: Any, *args: Any) -> ShareGroup:
        group: ShareGroup = restored(cls, *args)
        group.group_epoch += 1
        group.initialized = {}
        return group

    patch.setattr(ShareGroup, "restored", classmethod(loaded))


def does_not_assign_what_was_initialized(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShareGroup, "_on_initialized", lambda *_: [])


MUTATIONS = [
    Mutation(make, frozenset(says), kinds, story=ShareStory, first=first, quick=quick)
    for make, says, kinds, first, quick in [
        (acknowledges_before_the_state_is_stored, {"again", "liveness"}, KILLS, 0, False),
        (loads_snapshots_alone, {"again", "count", "liveness"}, KILLS, 0, False),
        (forgets_that_a_record_was_delivered, {"count"}, KILLS, 3, False),
        (never_ends_a_lock, {"liveness"}, ("pause", "partition"), 0, False),
        (deletes_snapshots_that_are_needed, {"again", "count", "liveness"}, KILLS, 4, False),
        (begins_initialized_partitions_again, {"again", "count"}, KILLS, 0, False),
        (does_not_assign_what_was_initialized, {"liveness", "lost"}, KILLS, 0, False),
    ]
]


@pytest.mark.parametrize("mutation", by_cost(MUTATIONS), ids=lambda mutation: mutation.name)
def test_the_story_finds(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.find(monkeypatch)
