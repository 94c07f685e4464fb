"""Random members of both protocols come and go, in groups that move between the protocols and whose coordinator is
killed: no partition has two readers, and in the end each has one.
"""

import random
from typing import Any

import pytest
from support.group_driver import Asked
from support.group_harness import ID, Harness
from support.long_tests import examples, first_is_quick

from barnabas.core.client.group.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.ports.types import TopicPartition

PARTITIONS, STEPS, MEMBERS_MAX = 6, 150, 5
SESSION_MS = 1_800_000
"""Longer than a test: a member whose session ends reads on until it notices."""


def named(numbers: set[int] | list[int]) -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in sorted(numbers)]


class ClassicReader:
    """A member with the classic protocol; a cooperative one reads on while it joins."""

    def __init__(self, world: "World", *, is_cooperative: bool) -> None:
        self.world = world
        self.is_cooperative = is_cooperative
        self.member_id = ""
        self.generation = -1
        self.owned: set[int] = set()
        self.must_join = True
        self.joining: Asked | None = None
        self.syncing: Asked | None = None

    @property
    def waits(self) -> bool:
        return self.joining is not None or self.syncing is not None

    def step(self) -> None:
        if self.joining is not None:
            if not self.joining.waits:
                asked, self.joining = self.joining, None
                self._joined(asked.result)
        elif self.syncing is not None:
            if not self.syncing.waits:
                asked, self.syncing = self.syncing, None
                self._synced(asked.result)
        elif self.must_join:
            self._join()
        else:
            self._note(self.world.harness.heartbeat("g", self.member_id, self.generation))

    def leave(self) -> None:
        self.owned = set()
        if self.member_id:
            self.world.harness.leave("g", self.member_id)

    def _join(self) -> None:
        if not self.is_cooperative:
            self.owned = set()
        metadata = encode_subscription(Subscription(topics=["t"], owned=named(self.owned)))
        self.joining = self.world.harness.join(
            member=self.member_id, metadata=metadata, session_ms=SESSION_MS, at_once=False
        )

    def _joined(self, result: Any) -> None:
        if result.error is E.MEMBER_ID_REQUIRED:
            self.member_id = result.member_id
        elif result.error is not E.NONE:
            self._note(result.error)
        else:
            self.generation, self.must_join = result.generation_id, False
            given = self._assign(result.members) if result.leader == self.member_id else None
            self.syncing = self.world.harness.sync("g", self.member_id, self.generation, given)

    def _assign(self, members: Any) -> dict[str, bytes]:
        """In turn; cooperative members get nothing that another one still reads."""
        owned = {each.member_id: {tp.partition for tp in decode_subscription(each.metadata).owned} for each in members}
        ids = list(owned)
        shares: dict[str, list[int]] = {each: [] for each in ids}
        for number in range(PARTITIONS):
            member_id = ids[number % len(ids)]
            if not any(number in owned[other] for other in ids if other != member_id):
                shares[member_id].append(number)
        return {each: encode_assignment(Assignment(partitions=named(share))) for each, share in shares.items()}

    def _synced(self, result: Any) -> None:
        if result.error is not E.NONE:
            self._note(result.error)
            return
        given = {each.partition for each in decode_assignment(result.assignment).partitions}
        self.must_join = self.is_cooperative and bool(self.owned - given)
        self.owned = given

    def _note(self, error: E) -> None:
        if error is E.NONE:
            return
        self.must_join = True
        if error in (E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION):
            self.owned = set()
            self.member_id = "" if error is E.UNKNOWN_MEMBER_ID else self.member_id
        else:
            assert error in (E.REBALANCE_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE)


class Reader:
    """A member by KIP-848."""

    waits = False

    def __init__(self, world: "World", member_id: str) -> None:
        self.world = world
        self.member_id = member_id
        self.epoch = 0
        self.owned: set[int] = set()
        self._has_news = False

    def step(self) -> None:
        owned = {ID: sorted(self.owned)} if self.owned else {}
        sends_owned = self._has_news or not self.epoch
        result = self.world.harness.beat(self.member_id, self.epoch, owned=owned if sends_owned else None).result
        self._has_news = False
        if result.error is not E.NONE:
            assert result.error in (E.FENCED_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID, E.GROUP_ID_NOT_FOUND)
            self.epoch, self.owned = 0, set()
            return
        self.epoch = result.member_epoch
        if result.assignment is not None:
            given = {number for each in result.assignment for number in each.partitions}
            self._has_news = given != self.owned
            self.owned = given

    def leave(self) -> None:
        self.owned = set()
        if self.epoch:
            self.world.harness.beat(self.member_id, -1)


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.harness = Harness()
        self.harness.topics = {"t": PARTITIONS}
        self.members: list[ClassicReader | Reader] = []
        self._is_cooperative = self.random.random() < 0.5
        self._made = 0

    def play(self) -> None:
        for _ in range(STEPS):
            self._step()
            self._check()
        for _ in range(400):
            self.harness.pass_time(150)
            for member in self.members:
                member.step()
                self._check()

    def is_settled(self) -> bool:
        owned = sorted(number for member in self.members for number in member.owned)
        return not self.members or owned == list(range(PARTITIONS))

    def _step(self) -> None:
        chance = self.random.random()
        if not self.members or (chance < 0.04 and len(self.members) < MEMBERS_MAX):
            self._made += 1
            is_new = self.random.random() < 0.5
            self.members.append(
                Reader(self, f"n{self._made}") if is_new else ClassicReader(self, is_cooperative=self._is_cooperative)
            )
        elif chance < 0.06:
            member = self.random.choice(self.members)
            member.leave()
            self.members.remove(member)
            # The classic group is written with its next generation: until then a restart brings the member back.
            self._finish_writes()
        elif chance < 0.07 and not any(member.waits for member in self.members):
            self.harness, before = self.harness.restarted(), self.harness
            self.harness.topics = before.topics
        elif chance < 0.15:
            self.harness.pass_time(self.random.choice([1, 50, 200, 1000]))
        else:
            self.random.choice(self.members).step()

    def _finish_writes(self) -> None:
        for _ in range(40):
            self.harness.pass_time(50)
            for member in self.members:
                member.step()
                self._check()

    def _check(self) -> None:
        owned = [number for member in self.members for number in member.owned]
        assert len(owned) == len(set(owned)), [(each.member_id, each.owned) for each in self.members]


@pytest.mark.parametrize("block", first_is_quick(range(3)))
def test_no_partition_has_two_readers_and_in_the_end_each_has_one(block: int) -> None:
    for seed in range(examples(200)):
        world = World(block * 1000 + seed)
        world.play()
        assert world.is_settled(), (block, seed)
