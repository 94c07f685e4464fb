"""Bugs that transactions and compaction could have: each one decision, made otherwise. The story has to find them."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from simulation.billing_story import BillingStory
from simulation.cluster_mutations import Mutation

from barnabas.core.coordinator.group.offsets import GroupOffsets
from barnabas.core.log.compaction.cleaned_transactions import CleanedTransactions
from barnabas.core.log.compaction.offset_map import OffsetMap
from barnabas.core.log.partition_log.unified_log import LogTransactions
from barnabas.core.replica.partition.partition import Partition


def shows_what_is_undecided(patch: pytest.MonkeyPatch) -> None:
    """Readers of committed messages wait for no transaction."""
    patch.setattr(Partition, "last_stable_offset", property(lambda self: self.high_watermark))


def omits_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogTransactions, "aborted_in", lambda *_: ())


def keeps_positions_of_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    end = GroupOffsets.end
    patch.setattr(GroupOffsets, "end", lambda self, producer_id, **_: end(self, producer_id, committed=True))


def drops_positions_of_committed_transactions(patch: pytest.MonkeyPatch) -> None:
    end = GroupOffsets.end
    patch.setattr(GroupOffsets, "end", lambda self, producer_id, **_: end(self, producer_id, committed=False))


def keeps_the_first_of_each_key(patch: pytest.MonkeyPatch) -> None:
    add = OffsetMap.add

    def added(self: OffsetMap, keys: Sequence[bytes], offsets: Iterable[int]) -> bool:
        known = self.latest(keys)
        new = {key: at for key, at, before in zip(keys, offsets, known, strict=False) if before < 0}
        return add(self, list(new), list(new.values()))

    patch.setattr(OffsetMap, "add", added)


def compacts_by_aborted_messages(patch: pytest.MonkeyPatch) -> None:
    """Compaction counts the messages of a transaction, whether it was committed or aborted."""

    def aborts(self: Any, header: Any) -> bool:
        self._reach(header)
        return False

    patch.setattr(CleanedTransactions, "aborts", aborts)


CALM = ("restart", "kill", "lose_connections")
MUTATIONS = (
    Mutation(
        shows_what_is_undecided,
        frozenset({"aborted", "half", "inconsistent", "twice"}),
        CALM,
        story=BillingStory,
        quick=True,
    ),
    Mutation(omits_aborted_transactions, frozenset({"aborted", "twice"}), CALM, story=BillingStory),
    Mutation(keeps_positions_of_aborted_transactions, frozenset({"lost"}), CALM, story=BillingStory),
    Mutation(drops_positions_of_committed_transactions, frozenset({"twice", "liveness"}), CALM, story=BillingStory),
    Mutation(keeps_the_first_of_each_key, frozenset({"compaction"}), CALM, story=BillingStory),
    Mutation(compacts_by_aborted_messages, frozenset({"compaction", "aborted"}), CALM, story=BillingStory),
)
