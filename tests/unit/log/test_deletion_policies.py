"""The built-in deletion policies (facts B3 retention)."""

import pytest

from barnabas.core.log.config import LogConfig
from barnabas.core.log.retention import DeletionContext, DeletionPolicy
from barnabas.core.message.message import Headers, Message
from barnabas.plugins.builtin.deletion import (
    Consumed,
    HeaderTtl,
    KafkaDeletionPolicy,
    KeepAll,
    KeyPrefixAge,
    builtin_deletion_policy,
    duration_ms,
)
from barnabas.plugins.host import PluginHost
from barnabas.ports.errors import ConfigError
from barnabas.ports.types import TopicPartition
from barnabas.testing.contracts.deletion_policy import DeletionPolicyContract, infos


class TestKafkaPolicy(DeletionPolicyContract):
    @pytest.fixture
    def policy(self) -> DeletionPolicy:
        return KafkaDeletionPolicy()


class TestKeepAll(DeletionPolicyContract):
    @pytest.fixture
    def policy(self) -> DeletionPolicy:
        return KeepAll()


@pytest.mark.parametrize(
    ("retention_bytes", "expected"),
    [(-1, 0), (300, 0), (250, 0), (201, 0), (200, 1), (150, 1), (100, 2), (99, 2), (0, 3)],
)
def test_size_goes_down_to_the_bound_and_not_below(retention_bytes: int, expected: int) -> None:
    config = LogConfig(retention_ms=-1, retention_bytes=retention_bytes)
    segments = infos((100, 0), (100, 0), (100, 0))
    assert KafkaDeletionPolicy().deletable(segments, now_ms=10**15, config=config) == expected


@pytest.mark.parametrize(("now_ms", "expected"), [(1100, 0), (1101, 1), (1200, 1), (1300, 1), (1301, 3)])
def test_age_stops_at_the_first_young_segment(now_ms: int, expected: int) -> None:
    config = LogConfig(retention_ms=100)
    segments = infos((1, 1000), (1, 1200), (1, 900))
    assert KafkaDeletionPolicy().deletable(segments, now_ms=now_ms, config=config) == expected


T0 = TopicPartition("t", 0)


def consumed(**positions: int | None) -> DeletionPolicy:
    """Return the policy for groups with these committed offsets."""
    context = DeletionContext(
        parameters=", ".join(positions), partition=T0, committed=lambda group, _: positions.get(group)
    )
    return Consumed(context)


class TestConsumed(DeletionPolicyContract):
    @pytest.fixture
    def policy(self) -> DeletionPolicy:
        return consumed(billing=25, audit=None)


@pytest.mark.parametrize(
    ("billing", "audit", "expected"),
    [(None, None, 0), (0, 0, 0), (9, 30, 0), (10, 30, 1), (30, 19, 1), (20, 20, 2), (30, 30, 3), (30, None, 0)],
)
def test_a_segment_goes_when_all_groups_have_read_it(billing: int | None, audit: int | None, expected: int) -> None:
    segments = infos((100, 0), (100, 0), (100, 0))
    config = LogConfig(retention_ms=1, retention_bytes=1)
    assert consumed(billing=billing, audit=audit).deletable(segments, now_ms=10**15, config=config) == expected


def test_a_policy_that_is_only_checked_deletes_nothing() -> None:
    policy = Consumed(DeletionContext(parameters="billing", committed=lambda *_: 99))
    assert policy.deletable(infos((1, 1)), now_ms=10**15, config=LogConfig()) == 0


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("consumed", "needs the groups to wait for"),
        ("consumed: ,", "needs the groups to wait for"),
        ("kafka:7d", "takes no parameters; it got '7d'"),
        ("key-prefix-age", "needs prefixes and ages"),
        ("key-prefix-age:user-", "'user-' is not PREFIX=AGE"),
        ("key-prefix-age:user-=7y", "'7y' is not a duration"),
        ("key-prefix-age:user-=-7d", "'-7d' is not a duration"),
        ("header-ttl", "needs the name of the header"),
        ("other:x", "unknown deletion policy 'other'; known: consumed, "),
    ],
)
def test_invalid_deletion_policy_names_its_fault(setting: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        PluginHost(load_entry_points=False).deletion_policy(setting)


DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS


def of_key(key: bytes | None, age_ms: int | None) -> Message:
    return Message(b"v", key, timestamp_ms=None if age_ms is None else NOW_MS - age_ms)


@pytest.mark.parametrize(
    ("key", "age_ms", "is_retained"),
    [
        (b"user-1", 7 * DAY_MS, True),
        (b"user-1", 7 * DAY_MS + 1, False),
        (b"user-test-1", 3_600_000, True),
        (b"user-test-1", 3_600_001, False),
        (b"order-1", 99 * DAY_MS, True),
        (b"user", 99 * DAY_MS, True),
        (None, 99 * DAY_MS, True),
        (b"user-1", None, True),
        (b"user-1", NOW_MS + 1, True),
    ],
)
def test_the_longest_prefix_of_a_key_says_how_old_it_gets(
    key: bytes | None, age_ms: int | None, is_retained: bool
) -> None:
    policy = KeyPrefixAge(DeletionContext(parameters="user-=7d, user-test-=1h"))
    assert policy.keeps(of_key(key, age_ms), now_ms=NOW_MS) is is_retained
    assert policy.look_again_ms == 360_000


def test_the_empty_prefix_is_that_of_all_keys() -> None:
    policy = KeyPrefixAge(DeletionContext(parameters="=30d,a=b==1s"))
    assert not policy.keeps(of_key(b"any", 31 * DAY_MS), now_ms=NOW_MS)
    assert not policy.keeps(of_key(b"a=b=c", 1001), now_ms=NOW_MS)
    assert policy.keeps(of_key(b"a=c", 1001), now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("headers", "is_retained"),
    [
        ((), True),
        ((("other", b"1"),), True),
        ((("ttl-ms", b"5000"),), True),
        ((("ttl-ms", b"4999"),), False),
        ((("x", None), ("ttl-ms", b"0")), False),
        ((("ttl-ms", None),), True),
        ((("ttl-ms", b""),), True),
        ((("ttl-ms", b"-1"),), True),
        ((("ttl-ms", b"soon"),), True),
        ((("ttl-ms", b"9" * 5000),), True),
    ],
)
def test_a_message_says_how_long_it_lives(headers: Headers, is_retained: bool) -> None:
    policy = HeaderTtl(DeletionContext(parameters="ttl-ms"))
    assert policy.keeps(Message(b"v", headers=headers, timestamp_ms=NOW_MS - 5000), now_ms=NOW_MS) is is_retained
    assert policy.keeps(Message(b"v", headers=headers, timestamp_ms=-1), now_ms=NOW_MS)


class TestKeyPrefixAge(DeletionPolicyContract):
    @pytest.fixture
    def policy(self) -> DeletionPolicy:
        return KeyPrefixAge(DeletionContext(parameters="a=1s"))


def test_durations_of_deletion_policies_are_parsed() -> None:
    texts = {"5": None, "5ms": 5, "5s": 5000, "5m": 300_000, "5h": 18_000_000, "5d": 432_000_000, "5w": 3_024_000_000}
    for text, expected in texts.items():
        if expected is None:
            with pytest.raises(ConfigError, match="not a duration"):
                duration_ms(text)
        else:
            assert duration_ms(f" {text} ") == expected


def test_deletion_policies_are_found_by_name() -> None:
    context = DeletionContext(parameters="")
    assert isinstance(builtin_deletion_policy("kafka", context), KafkaDeletionPolicy)
    assert isinstance(builtin_deletion_policy("none", context), KeepAll)
    assert builtin_deletion_policy("other", context) is None
