"""Consumers that read from the replica in their rack; `make sim STORY=near` plays more of them."""

from typing import Any

import pytest
from simulation.cluster_mutations import Mutation, by_cost
from simulation.near_story import NearStory

from barnabas.app.broker.handlers.fetch import PreferredReadReplicas
from barnabas.core.client.consumer.fetcher import Fetcher
from barnabas.core.replica.leader.fetch_params import FetchParams
from barnabas.core.replica.partition.fetch_isolation import FetchIsolation
from barnabas.ports.broker_api.fetch import FetchResultPartition

CHEAP_SEED = 3
"""Seed 0 takes four times its CPU time."""


def test_near_story_holds_for_seed(seed: int) -> None:
    NearStory(CHEAP_SEED + seed).play()


def shows_damage_of_a_follower_to_consumers(patch: pytest.MonkeyPatch) -> None:
    def refused(_self: FetchParams, _partition: Any, entry: Any, error: Any) -> FetchResultPartition:
        return FetchResultPartition(entry.topic, entry.partition, error.code, topic_id=entry.topic_id)

    patch.setattr(FetchParams, "refused", refused)


def sends_consumers_back_to_a_damaged_replica(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PreferredReadReplicas, "_has_returned", lambda *_: False)


def gives_consumers_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    init = FetchParams.__init__

    def made(self: FetchParams, isolation: FetchIsolation, **more: Any) -> None:
        init(self, FetchIsolation.LOG_END if more.get("anywhere") else isolation, **more)

    patch.setattr(FetchParams, "__init__", made)


def takes_the_damage_of_a_follower_for_that_of_the_leader(patch: pytest.MonkeyPatch) -> None:
    """Our consumer gives its user the error that only one copy has."""
    keep = Fetcher._keep

    def keep_and_count(self: Fetcher, state: Any, *rest: Any) -> None:
        state.near = -1
        keep(self, state, *rest)

    patch.setattr(Fetcher, "_keep", keep_and_count)


NEAR = frozenset({"near", "consumer"})
MUTATIONS = (
    Mutation(shows_damage_of_a_follower_to_consumers, NEAR, story=NearStory),
    Mutation(sends_consumers_back_to_a_damaged_replica, NEAR, story=NearStory, quick=True),
    Mutation(gives_consumers_what_is_not_committed, NEAR, story=NearStory, quick=True),
    Mutation(takes_the_damage_of_a_follower_for_that_of_the_leader, NEAR, story=NearStory),
)


@pytest.mark.parametrize("mutation", by_cost(MUTATIONS), ids=lambda mutation: mutation.name)
def test_the_story_finds(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.find(monkeypatch)
