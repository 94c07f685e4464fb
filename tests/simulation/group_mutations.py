"""Bugs that a coordinator of consumer groups could have: each one decision, made otherwise. The story has to find
them."""

from typing import Any

import pytest
from simulation.cluster_mutations import Mutation
from simulation.consumer_group_story import ConsumerGroupStory

from barnabas.core.coordinator.group.consumer_group import ConsumerGroup, PartitionEpochs
from barnabas.core.coordinator.group.modern_group import MemberState
from barnabas.ports.error_codes import ErrorCode


def frees_partitions_before_they_are_given_up(patch: pytest.MonkeyPatch) -> None:
    """A partition goes to its next owner while the former one still reads it."""
    own = ConsumerGroup._own

    def owned(self: ConsumerGroup, member: Any) -> None:
        revoking, member.revoking = member.revoking, {}
        own(self, member)
        member.revoking = revoking

    patch.setattr(ConsumerGroup, "_own", owned)


def takes_a_null_list_for_given_up(patch: pytest.MonkeyPatch) -> None:
    """A heartbeat that says nothing of the member's partitions confirms that it gave some up."""
    reconcile = ConsumerGroup._reconcile

    def reconciled(self: ConsumerGroup, member: Any, owned: Any, now_ms: float, *, is_new: bool) -> None:
        reconcile(self, member, {} if owned is None else owned, now_ms, is_new=is_new)

    patch.setattr(ConsumerGroup, "_reconcile", reconciled)


def takes_commits_of_all_epochs(patch: pytest.MonkeyPatch) -> None:
    """Commits of members that were removed, or that gave the partition up, count."""
    patch.setattr(ConsumerGroup, "check_commit", lambda *_: ErrorCode.NONE)
    patch.setattr(ConsumerGroup, "commit_validator", lambda *_: None)


def keeps_the_epoch_when_a_member_leaves(patch: pytest.MonkeyPatch) -> None:
    def removed(self: ConsumerGroup, member: Any, _: str) -> None:
        self._forget_member(member)

    patch.setattr(ConsumerGroup, "_remove", removed)


def keeps_the_owner_that_has_gone(patch: pytest.MonkeyPatch) -> None:
    """Nobody gets the partitions of a member whose session has ended."""

    def disowned(self: ConsumerGroup, partitions: PartitionEpochs) -> None:
        for topic_id, numbers in partitions.items():
            owners = self._owners.get(topic_id, {})
            for number in numbers:
                if owners.get(number) in self.members:
                    owners.pop(number)

    forget = ConsumerGroup._forget_member

    def forgotten(self: ConsumerGroup, member: Any) -> None:
        del self.members[member.member_id]
        self._disown(member.assigned)
        self.members[member.member_id] = member
        member.assigned = {}
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(ConsumerGroup, "_disown", lambda *_: None)
            forget(self, member)

    patch.setattr(ConsumerGroup, "_disown", disowned)
    patch.setattr(ConsumerGroup, "_forget_member", forgotten)


def does_not_see_new_partitions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerGroup, "_refresh_metadata", lambda _: False)


def restores_members_as_stable(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that has read the log does not know what members have yet to give up."""
    restored = ConsumerGroup.restored.__func__  # type: ignore[attr-defined]  # of a class method

    def loaded(cls: Any, group_id: str, context: Any, stored: Any, now_ms: float) -> ConsumerGroup:
        group: ConsumerGroup = restored(cls, group_id, context, stored, now_ms)
        for member in group.members.values():
            group._disown(member.revoking)
            member.revoking, member.state = {}, MemberState.STABLE
        return group

    patch.setattr(ConsumerGroup, "restored", classmethod(loaded))


MUTATIONS = (
    Mutation(frees_partitions_before_they_are_given_up, frozenset({"two"}), story=ConsumerGroupStory, quick=True),
    Mutation(takes_a_null_list_for_given_up, frozenset({"two"}), story=ConsumerGroupStory),
    Mutation(takes_commits_of_all_epochs, frozenset({"two", "lost"}), story=ConsumerGroupStory),
    Mutation(keeps_the_epoch_when_a_member_leaves, frozenset({"liveness"}), story=ConsumerGroupStory, quick=True),
    Mutation(keeps_the_owner_that_has_gone, frozenset({"liveness"}), story=ConsumerGroupStory),
    Mutation(does_not_see_new_partitions, frozenset({"liveness"}), story=ConsumerGroupStory),
    Mutation(
        restores_members_as_stable,
        frozenset({"two"}),
        ("cut_power", "leave", "add_partition"),
        story=ConsumerGroupStory,
    ),
)
