"""The built-in deletion policies (facts B3 retention)."""

import pytest

from barnabas.core.log.config import LogConfig
from barnabas.core.log.retention import DeletionContext, DeletionPolicy
from barnabas.plugins.builtin.deletion import (
    Consumed,
    KafkaDeletionPolicy,
    KeepAll,
    builtin_deletion_policy,
)
from barnabas.plugins.host import PluginHost
from barnabas.ports.errors import ConfigError
from barnabas.ports.words import TopicPartition
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
    """The policy for groups that stand there."""
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
        ("other:x", "unknown deletion policy 'other'; known: consumed, "),
    ],
)
def test_what_cannot_be_made_says_why(setting: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        PluginHost(load_entry_points=False).deletion_policy(setting)


def test_by_name() -> None:
    context = DeletionContext(parameters="")
    assert isinstance(builtin_deletion_policy("kafka", context), KafkaDeletionPolicy)
    assert isinstance(builtin_deletion_policy("none", context), KeepAll)
    assert builtin_deletion_policy("other", context) is None
