"""The settings of single groups, and who combines them."""

import pytest

from barnabas.core.coordinator.group.group_config import GroupConfig, GroupConfigManager, duration_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT0S", 0),
        ("PT1H", 3_600_000),
        ("P7D", 604_800_000),
        ("P1DT2H30M", 95_400_000),
        ("PT1.5S", 1_500),
        ("pt15m", 900_000),
    ],
)
def test_duration_of_iso_8601_is_read_as_java_reads_it(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "1H", "P1H", "PT1D", "P1DT", "-PT1H", "PT-1H", "PT1H ", "P1M", "PT1,5S"]
)
def test_duration_in_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration such as P7D"):
        duration_ms(text)


def test_reset_by_duration_gives_its_age_others_none() -> None:
    assert GroupConfig(share_auto_offset_reset="by_duration:PT2H").share_reset_age_ms == 7_200_000
    assert GroupConfig(share_auto_offset_reset="earliest").share_reset_age_ms is None


def test_group_without_configs_of_its_own_has_those_of_the_broker() -> None:
    manager = GroupConfigManager(GroupConfig(consumer_session_timeout_ms=50_000))
    assert manager.get("any").consumer_session_timeout_ms == 50_000


def test_update_of_a_group_replaces_what_was_set_for_it_alone() -> None:
    manager = GroupConfigManager()
    manager.update_group_config("a", {"share_delivery_count_limit": 3})
    manager.update_group_config("a", {"share_isolation_level": "read_committed"})
    assert manager.get("a") == GroupConfig(share_isolation_level="read_committed")
    assert manager.get("a").reads_committed
    assert manager.get("b") == GroupConfig()
    manager.update_group_config("a", {})
    assert manager.get("a") == GroupConfig()
