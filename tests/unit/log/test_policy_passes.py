"""Deletion policies that let single messages go: what the cleaner makes of their answers."""

from typing import Any

import pytest
from attrs import evolve
from support.cleaned_log import COMPACT, CleanedLogs, messages_of

from barnabas.core.log.retention import DeletionContext
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.plugins.builtin.deletion import HeaderTtl, KafkaDeletionPolicy, KeepAll, KeyPrefixAge
from barnabas.testing.logs import numbered

DELETE = evolve(COMPACT, cleanup_policy=frozenset({"delete"}), retention_ms=-1)
HOUR_MS = 3_600_000
CODECS = builtin_codecs()


class Without(KafkaDeletionPolicy):
    """Messages with this key go."""

    look_again_ms = HOUR_MS

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.asked: list[Message] = []
        self.failure: Exception | None = None

    def keeps(self, message: Message, *, now_ms: int) -> bool:
        if self.failure is not None:
            raise self.failure
        self.asked.append(message)
        return message.key != self.key


def logs_with(policy: Any, **config: Any) -> CleanedLogs:
    return CleanedLogs(evolve(DELETE, **config), policy=policy, codecs=CODECS)


def keys_of(logs: CleanedLogs) -> list[bytes | None]:
    return [message.key for message in messages_of(logs.log, CODECS) if message.key != b"rolled"]


def pairs(*keys: bytes) -> list[tuple[bytes | None, bytes | None]]:
    return [(key, b"v" * 30) for key in keys]


def test_messages_go_wherever_they_stand_and_the_others_stay_where_they_were() -> None:
    policy = Without(b"gone")
    logs = logs_with(policy)
    for _ in range(6):
        logs.put(*pairs(b"a", b"gone", b"b"))
    logs.put(*pairs(b"gone"))
    before = messages_of(logs.log)
    logs.clean()
    assert policy.asked[:19] == [message._replace(topic="t", partition=0) for message in before]
    remaining = [message for message in messages_of(logs.log) if message.key != b"rolled"]
    assert remaining == [message for message in before if message.key != b"gone"]
    assert logs.log.log_start_offset == 0
    (line,) = [line for line in logs.reports if "was looked at by deletion.policy=" in line]
    assert "7 of " in line
    end = logs.log.log_end_offset
    logs.stop()
    logs.start()
    assert keys_of(logs) == [b"a", b"b"] * 6
    assert logs.log.log_end_offset == end


def test_the_next_pass_comes_when_the_policy_wants_it() -> None:
    policy = Without(b"gone")
    logs = logs_with(policy)
    logs.put(*pairs(b"a", b"b", b"c"))
    logs.clean()
    asked = len(policy.asked)
    assert asked >= 3
    policy.key = b"b"
    logs.clean()
    assert len(policy.asked) == asked
    logs.wait(HOUR_MS)
    assert keys_of(logs) == [b"a", b"c"]
    lines = [line for line in logs.reports if "was looked at" in line]
    logs.wait(3 * HOUR_MS)
    assert [line for line in logs.reports if "was looked at" in line] == lines, "nothing went: nothing is said"


def test_segments_without_anything_to_let_go_stay_as_they_are() -> None:
    logs = logs_with(Without(b"gone"))
    for _ in range(10):
        logs.put(*pairs(b"a", b"b"))
    logs.roll()
    segments = logs.log.segments[:-1]
    assert len(segments) > 3
    logs.clean()
    assert logs.log.segments[: len(segments)] == segments
    logs.put(*pairs(b"gone"))
    logs.roll()
    logs.wait(HOUR_MS)
    assert keys_of(logs) == [b"a", b"b"] * 10


def test_the_newest_segment_and_what_is_not_decided_are_left_alone() -> None:
    policy = Without(b"gone")
    logs = logs_with(policy)
    logs.put(*pairs(b"gone"))
    logs.wait(5000)
    assert keys_of(logs) == [b"gone"]
    logs.decided_to = {logs.log.topic_partition: logs.log.log_start_offset}
    logs.clean()
    assert (keys_of(logs), policy.asked) == ([b"gone"], [])
    logs.decided_to = {}
    logs.clean()
    assert keys_of(logs) == []


def test_a_policy_that_fails_costs_nothing_and_is_asked_again_later() -> None:
    policy = Without(b"gone")
    policy.failure = KeyError("a fault")
    logs = logs_with(policy, deletion_policy="mine")
    logs.put(*pairs(b"a", b"gone"))
    logs.clean()
    assert keys_of(logs) == [b"a", b"gone"]
    (line,) = [line for line in logs.reports if "deletion policy 'mine' failed: KeyError" in line]
    assert "could not look at all messages of t-0" in line
    policy.failure = None
    logs.wait(HOUR_MS)
    assert keys_of(logs) == [b"a"]


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_compressed_batches_stay_compressed(codec: str) -> None:
    logs = logs_with(Without(b"gone"))
    messages = [Message(b"v" * 50, key, timestamp_ms=1) for key in (b"a", b"gone", b"b")]
    batch = encode_batch(messages, now_ms=1, codec=CODECS.by_name(codec))
    logs.log.append(memoryview(batch), leader_epoch=0, now_ms=1)
    logs.clean()
    assert keys_of(logs) == [b"a", b"b"]


def test_the_last_batch_of_a_producer_is_known_by_after_its_messages_have_gone() -> None:
    logs = logs_with(HeaderTtl(DeletionContext(parameters="ttl")))
    now_ms = logs.clock.now_ms()
    first = Message(b"v", b"k", (("ttl", b"0"),), timestamp_ms=now_ms)
    batch = memoryview(encode_batch([first], now_ms=now_ms, producer_id=7, producer_epoch=0, base_sequence=0))
    logs.log.append(batch, leader_epoch=0, now_ms=now_ms)
    logs.wait(10)
    logs.clean()
    assert keys_of(logs) == []
    logs.stop()
    logs.start()
    assert logs.log.append(batch, leader_epoch=0, now_ms=now_ms).base_offset == 0, "it was sent before"
    following = numbered(b"next", producer=7, sequence=1, at=now_ms)
    assert logs.log.append(following, leader_epoch=0, now_ms=now_ms).base_offset > 0


def test_prefixes_and_ages() -> None:
    logs = logs_with(KeyPrefixAge(DeletionContext(parameters="user-=7d,session-=1h")))
    logs.put(*pairs(b"user-1", b"session-1", b"order-1"))
    logs.clean()
    assert keys_of(logs) == [b"user-1", b"session-1", b"order-1"]
    logs.wait(2 * HOUR_MS)
    assert keys_of(logs) == [b"user-1", b"order-1"]
    logs.wait(8 * 24 * HOUR_MS)
    assert keys_of(logs) == [b"order-1"]


def test_retention_still_deletes_old_segments() -> None:
    logs = logs_with(KeyPrefixAge(DeletionContext(parameters="user-=1d")), retention_ms=10 * HOUR_MS)
    logs.put(*pairs(b"order-1"))
    logs.roll()
    logs.wait(11 * HOUR_MS)
    assert keys_of(logs) == []
    assert logs.log.log_start_offset > 0


def test_a_compacted_log_that_deletes_has_both() -> None:
    both = frozenset({"compact", "delete"})
    logs = logs_with(Without(b"gone"), cleanup_policy=both)
    for number in range(10):
        logs.put((b"k", b"%d" % number), (b"gone", b"x"))
    logs.clean()
    logs.wait(HOUR_MS)
    assert [message.value for message in messages_of(logs.log) if message.key == b"k"] == [b"9"]
    assert keys_of(logs) == [b"k"]


def test_a_policy_of_a_log_that_only_compacts_is_not_asked() -> None:
    policy = Without(b"gone")
    logs = logs_with(policy, cleanup_policy=frozenset({"compact"}))
    logs.put(*pairs(b"gone"))
    logs.clean()
    assert (keys_of(logs), policy.asked) == ([b"gone"], [])


def test_a_policy_of_segments_alone_has_nothing_read() -> None:
    logs = logs_with(KeepAll())
    logs.put(*pairs(b"a"))
    logs.clean()
    assert not [line for line in logs.reports if "was looked at" in line]
