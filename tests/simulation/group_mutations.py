"""Bugs that a coordinator of consumer groups could have: each one decision, made otherwise. The story has to find
them."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from simulation.cluster_mutations import Mutation
from simulation.consumer_group_story import ConsumerGroupStory

from barnabas.core.coordinator.group.classic_group import ClassicGroup
from barnabas.core.coordinator.group.consumer_group import ConsumerGroup, PartitionEpochs
from barnabas.core.coordinator.group.effects import Answer, WriteRecords
from barnabas.core.coordinator.group.expressions import GroupExpressions
from barnabas.core.coordinator.group.modern_group import MemberState, Timeout
from barnabas.core.coordinator.group.shard import GroupShard
from barnabas.core.coordinator.group.subscription import encode_assignment
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
    """No member gets the partitions of a member whose session has ended."""

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


def upgrades_without_the_partitions(patch: pytest.MonkeyPatch) -> None:
    """A group that is converted to the consumer protocol does not know what its classic members read."""
    patch.setattr(ConsumerGroup, "_claim", lambda *_: {})


def downgrades_to_the_first_generation(patch: pytest.MonkeyPatch) -> None:
    """A group that is converted to the classic protocol counts its generations from the start."""
    downgrade = ConsumerGroup.downgrade

    def downgraded(self: ConsumerGroup, now_ms: float) -> Any:
        self.group_epoch = 0
        return downgrade(self, now_ms)

    patch.setattr(ConsumerGroup, "downgrade", downgraded)


def leaves_the_former_group_in_the_log(patch: pytest.MonkeyPatch) -> None:
    """A conversion does not take the records of the former group out of the log."""
    patch.setattr(ConsumerGroup, "tombstones", lambda _: [])
    patch.setattr(ClassicGroup, "tombstones", lambda _: [])


def writes_no_group_when_it_is_converted(patch: pytest.MonkeyPatch) -> None:
    """The classic group that a consumer group becomes is in memory only."""
    replace = GroupShard.replace

    def replaced(self: GroupShard, entry: Any, group: Any, error: Any, *_: Any) -> None:
        replace(self, entry, group, error)

    patch.setattr(GroupShard, "replace", replaced)
    patch.setattr(ClassicGroup, "_prepare", lambda *_: None)


def gives_classic_members_the_target(patch: pytest.MonkeyPatch) -> None:
    """A SyncGroup is answered with what the member is going to have, whether others have given it up or not."""

    def assignment(self: ConsumerGroup, member: Any) -> bytes:
        names = (
            (self._context.topics.topic_name(each), has) for each, has in self._target_of(member.member_id).items()
        )
        return encode_assignment({name: has for name, has in names if name is not None})

    patch.setattr(ConsumerGroup, "_classic_assignment", assignment)


def lets_classic_members_join_without_what_they_own(patch: pytest.MonkeyPatch) -> None:
    """A JoinGroup confirms that the member has given up everything."""
    patch.setattr(ConsumerGroup, "_by_id", lambda *_: {})


def never_asks_classic_members_to_join_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerGroup, "_must_rejoin", lambda *_: False)


def _restored_otherwise(patch: pytest.MonkeyPatch, change: Callable[[ConsumerGroup], None]) -> None:
    restored = ConsumerGroup.restored.__func__  # type: ignore[attr-defined]  # of a class method

    def loaded(cls: Any, group_id: str, context: Any, stored: Any, now_ms: float) -> ConsumerGroup:
        group: ConsumerGroup = restored(cls, group_id, context, stored, now_ms)
        change(group)
        return group

    patch.setattr(ConsumerGroup, "restored", classmethod(loaded))


def restores_no_static_members(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that has read the log does not know which member has which instance id."""
    _restored_otherwise(patch, lambda group: group._static.clear())


def restores_no_classic_members(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that has read the log takes all members for such with the consumer protocol."""

    def forget(group: ConsumerGroup) -> None:
        for member in group.members.values():
            member.classic = None
        group._classic.clear()

    _restored_otherwise(patch, forget)


def restores_no_sessions(patch: pytest.MonkeyPatch) -> None:
    """Members that do not come back after their coordinator has moved stay for ever."""

    def forget(group: ConsumerGroup) -> None:
        for member_id in group.members:
            group._deadlines.drop((Timeout.SESSION, member_id))

    _restored_otherwise(patch, forget)


def does_not_look_for_new_topics(patch: pytest.MonkeyPatch) -> None:
    """A pattern stands for the topics that matched when its first member came."""
    to_resolve = GroupExpressions.to_resolve

    def resolved_once(self: GroupExpressions, asked: str | None, _: int, now_ms: float, refresh_ms: int) -> Any:
        return to_resolve(self, asked, self._version, now_ms, refresh_ms)

    patch.setattr(GroupExpressions, "to_resolve", resolved_once)


def matches_topics_for_the_first_member_alone(patch: pytest.MonkeyPatch) -> None:
    """The topics of a pattern are found, and the group's assignment stays as it is."""

    def resolved(self: ConsumerGroup, found: Any, version: int, now_ms: float, wall_ms: int) -> None:
        self._expressions.is_resolving = False
        self._expressions.update(found, version, now_ms, wall_ms)

    patch.setattr(ConsumerGroup, "take_expressions", resolved)


def answers_before_the_records_are_durable(patch: pytest.MonkeyPatch) -> None:
    execute = GroupShard.execute

    def executed(self: GroupShard, entry: Any, effect: Any) -> None:
        answer = effect.answer if isinstance(effect, WriteRecords) else None
        if answer is not None:
            self.runtime.respond(answer.to, answer.result)
            effect = WriteRecords(effect.records, effect.keys, calls=effect.calls)
        if isinstance(effect, Answer):
            effect = Answer(effect.to, effect.result)
        execute(self, entry, effect)

    patch.setattr(GroupShard, "execute", executed)


PLAIN: Mapping[str, Any] = {"brokers": 1, "mixed": False, "patterns": False}
MIXED: Mapping[str, Any] = {"mixed": True}
PATTERNS: Mapping[str, Any] = {"patterns": True}
MUTATIONS = (
    Mutation(
        frees_partitions_before_they_are_given_up,
        frozenset({"two"}),
        ("vanish", "add_partition", "return_static_member"),
        story=ConsumerGroupStory,
        settings=PLAIN,
        quick=True,
    ),
    Mutation(
        takes_a_null_list_for_given_up,
        frozenset({"two"}),
        ("vanish", "add_partition", "return_static_member"),
        story=ConsumerGroupStory,
        settings=PLAIN,
    ),
    Mutation(
        takes_commits_of_all_epochs,
        frozenset({"two", "lost"}),
        ("delay_requests", "add_partition", "vanish"),
        story=ConsumerGroupStory,
        settings=PLAIN,
    ),
    Mutation(
        keeps_the_epoch_when_a_member_leaves,
        frozenset({"liveness"}),
        story=ConsumerGroupStory,
        settings=PLAIN,
        first=6,
    ),
    Mutation(keeps_the_owner_that_has_gone, frozenset({"liveness"}), story=ConsumerGroupStory, settings=PLAIN),
    Mutation(does_not_see_new_partitions, frozenset({"liveness"}), story=ConsumerGroupStory, settings=PLAIN),
    Mutation(
        restores_members_as_stable,
        frozenset({"two"}),
        ("cut_power_early", "add_partition"),
        story=ConsumerGroupStory,
        settings=PLAIN,
    ),
    Mutation(
        upgrades_without_the_partitions,
        frozenset({"two"}),
        ("change_protocol", "add_partition"),
        story=ConsumerGroupStory,
        settings=MIXED,
    ),
    Mutation(downgrades_to_the_first_generation, frozenset({"two"}), story=ConsumerGroupStory, settings=MIXED),
    Mutation(
        leaves_the_former_group_in_the_log,
        frozenset({"out", "two", "liveness"}),
        story=ConsumerGroupStory,
        settings=MIXED,
    ),
    Mutation(
        writes_no_group_when_it_is_converted,
        frozenset({"out", "two", "liveness"}),
        story=ConsumerGroupStory,
        settings=MIXED,
    ),
    Mutation(gives_classic_members_the_target, frozenset({"two"}), story=ConsumerGroupStory, settings=MIXED),
    Mutation(
        lets_classic_members_join_without_what_they_own,
        frozenset({"two"}),
        ("change_protocol", "add_partition", "leave"),
        story=ConsumerGroupStory,
        settings=MIXED,
    ),
    Mutation(
        never_asks_classic_members_to_join_again,
        frozenset({"liveness"}),
        story=ConsumerGroupStory,
        settings=MIXED,
    ),
    Mutation(restores_no_static_members, frozenset({"out"}), story=ConsumerGroupStory),
    Mutation(restores_no_classic_members, frozenset({"out"}), story=ConsumerGroupStory, settings=MIXED),
    Mutation(restores_no_sessions, frozenset({"liveness"}), story=ConsumerGroupStory),
    Mutation(does_not_look_for_new_topics, frozenset({"liveness"}), story=ConsumerGroupStory, settings=PATTERNS),
    Mutation(
        matches_topics_for_the_first_member_alone,
        frozenset({"liveness"}),
        story=ConsumerGroupStory,
        settings=PATTERNS,
    ),
    Mutation(
        answers_before_the_records_are_durable,
        frozenset({"two", "back"}),
        ("isolate", "vanish", "return_static_member"),
        story=ConsumerGroupStory,
        settings={"brokers": 3},
    ),
)
