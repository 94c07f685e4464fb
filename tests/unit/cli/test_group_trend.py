"""The trend of a group's lag between two looks."""

import pytest

from barnabas.app.cli.groups.command import parse_offsets
from barnabas.app.cli.groups.trend import Trend, age_trend_text, done_in_ms, done_in_text, trend_of, trend_text
from barnabas.ports.errors import ConfigError
from barnabas.ports.types import TopicPartition


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ((100, 5_000), (80, 4_000), Trend(-10.0, -500.0)),
        ((0, 0), (0, 0), Trend(0.0, 0.0)),
        ((None, None), (5, 100), Trend()),
        ((5, 100), (None, None), Trend()),
        (None, (5, 100), Trend()),
    ],
)
def test_trend_is_the_change_in_a_second(
    before: tuple[int | None, int | None] | None, now: tuple[int | None, int | None], expected: Trend
) -> None:
    assert trend_of(before, now, 2.0) == expected
    assert trend_of(before, now, 0.0) == Trend()


def test_shrinking_lag_will_be_gone() -> None:
    assert done_in_ms(80, Trend(-10.0, None)) == 8_000
    assert done_in_ms(0, Trend()) == 0
    assert done_in_ms(80, Trend(0.0, None)) is None
    assert done_in_ms(80, Trend(3.0, None)) is None
    assert done_in_ms(None, Trend(-3.0, None)) is None
    assert [done_in_text(each) for each in (None, 0, 8_000, 180_000)] == ["-", "0s", "8s", "3min"]


def test_trends_have_a_sign() -> None:
    assert [trend_text(each) for each in (None, 0.0, 0.04, 0.5, -2.25, 1234.5)] == [
        *("-", "0/s", "0/s", "+0.5/s", "-2.2/s", "+1234/s")
    ]
    assert [age_trend_text(each) for each in (None, 0.0, 1_000.0, -12_340.0)] == ["-", "0s/s", "+1.0s/s", "-12.3s/s"]


def test_offsets_to_set_name_topic_and_partition() -> None:
    assert parse_offsets(["a:b:0=5", "c:12=0"]) == {TopicPartition("a:b", 0): 5, TopicPartition("c", 12): 0}
    for wrong in ("a=5", "a:0", "a:x=5", "a:0=-1", ":0=1"):
        with pytest.raises(ConfigError, match="TOPIC:PARTITION=OFFSET"):
            parse_offsets([wrong])
