"""Bugs that tiered storage could have: each is one decision, made otherwise. The story has to find every one."""

from typing import Any

import pytest
from attrs import evolve
from simulation.cluster_mutations import LOST, Mutation
from simulation.tiering_story import TieringStory

from barnabas.app.broker.state import tiering
from barnabas.app.broker.state.tiering import Tiering
from barnabas.core.log.producers.producer_state import ProducerStates
from barnabas.core.log.producers.snapshot import encode_snapshot
from barnabas.core.tiering import manifest as manifests
from barnabas.core.tiering import remote_log_manager
from barnabas.core.tiering.manifest import Manifest, RemoteSegment
from barnabas.core.tiering.remote_log_manager import RemoteLogManager
from barnabas.core.tiering.remote_reader import RemoteLogReader, RemoteView


def deletes_local_segments_that_are_not_copied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Manifest, "covered_to", lambda _self, offset: offset + 200)


def takes_the_lineage_of_the_log_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(remote_log_manager, "merged_lineage", lambda _stored, own: tuple(own[-1:]))


def rebuilds_followers_without_producers(patch: pytest.MonkeyPatch) -> None:
    read = tiering.read_aux_state

    def without(*args: Any) -> Any:
        found = read(*args)
        return None if found is None else evolve(found, snapshot=encode_snapshot(ProducerStates()))

    patch.setattr(tiering, "read_aux_state", without)


def rebuilds_followers_behind_what_is_copied(patch: pytest.MonkeyPatch) -> None:
    read = tiering.read_aux_state

    def further(*args: Any) -> Any:
        found = read(*args)
        return None if found is None else evolve(found, offset=found.offset + 1)

    patch.setattr(tiering, "read_aux_state", further)


def offers_a_segment_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    def start(manifest: Manifest, segment: RemoteSegment) -> Manifest:
        begun = manifests.start_copy(manifest, segment)
        return manifests.finish_copy(begun, segment.segment_id, begun.epochs)

    patch.setattr(remote_log_manager, "start_copy", start)


def reads_behind_the_offset(patch: pytest.MonkeyPatch) -> None:
    """A reader of remote storage gets what follows the record that it wants."""
    read = RemoteLogReader.read
    patch.setattr(
        RemoteLogReader, "read", lambda self, view, offset, **rest: read(self, view, _later(view, offset), **rest)
    )


def _later(view: RemoteView, offset: int) -> int:
    return offset if view.manifest.find(offset + 1) is None else offset + 1


def leaves_the_objects_of_deleted_topics(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tiering, "topic_deleted", lambda *_: None)
    patch.setattr(Tiering, "_finish_deletions", lambda _self: None)


def stores_the_batches_only(patch: pytest.MonkeyPatch) -> None:
    def put(self: RemoteLogManager, folder: str, remote: RemoteSegment, batches: Any, _parts: Any) -> None:
        self._storage.put(manifests.log_key(folder, remote), batches)

    patch.setattr(RemoteLogManager, "_put", put)


TIER = LOST | {"tier", "liveness", "consumer", "order"}
MUTATIONS = (
    Mutation(deletes_local_segments_that_are_not_copied, TIER, story=TieringStory),
    Mutation(takes_the_lineage_of_the_log_alone, TIER, story=TieringStory),
    Mutation(rebuilds_followers_without_producers, TIER, story=TieringStory, settings={"early": True}),
    Mutation(rebuilds_followers_behind_what_is_copied, TIER, story=TieringStory, quick=True),
    Mutation(offers_a_segment_before_it_is_stored, TIER, story=TieringStory),
    Mutation(reads_behind_the_offset, TIER, story=TieringStory),
    Mutation(leaves_the_objects_of_deleted_topics, TIER, story=TieringStory),
    Mutation(stores_the_batches_only, TIER, story=TieringStory),
)
