"""Notes about what was left out, from tasks to the table."""

from pathlib import Path
from typing import Any

import pytest

from barnabas.pipeline.source.options import read_options
from barnabas.pipeline.topics.damage import DamagedRange, merged, read_damage, still_damaged, write_damage
from barnabas.pipeline.topics.model import ClusterPartition
from barnabas.ports.errors import ConfigError

TOPIC = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}


def damaged(start: int, end: int, topic: str = "t", **more: Any) -> DamagedRange:
    return DamagedRange(topic=topic, partition=0, start=start, end=end, reason="why", **more)


def test_damage_written_by_tasks_is_merged_and_sorted(tmp_path: Path) -> None:
    folder = tmp_path / "damage"
    assert read_damage(folder) == []
    for each in (damaged(150, 160), damaged(10, 20), damaged(150, 160), damaged(155, 165), damaged(5, 6, "s")):
        write_damage(folder, each)
    (folder / "half.tmp").write_text("{")
    assert read_damage(folder) == [damaged(5, 6, "s"), damaged(10, 20), damaged(150, 165)]


def test_neighbours_and_other_brokers_stay_apart() -> None:
    assert merged([damaged(0, 5), damaged(5, 9)]) == [damaged(0, 5), damaged(5, 9)]
    assert len(merged([damaged(0, 5, broker=1), damaged(0, 5, broker=2)])) == 2
    assert str(damaged(0, 5, broker=2)) == "t-2-0: offsets 0 to 5: why"


def test_damage_in_reread_range_is_replaced_by_new_findings() -> None:
    before = [damaged(10, 20), damaged(40, 60), damaged(1, 2, "gone"), damaged(3, 4, "other")]
    after = still_damaged(before, {ClusterPartition("t", 0): 50}.items(), ["gone"], [damaged(70, 80)])
    assert after == [damaged(3, 4, "other"), damaged(10, 20), damaged(40, 50), damaged(70, 80)]


def test_the_option_is_a_setting_of_the_clients() -> None:
    assert read_options(TOPIC).client == {}
    options = read_options(
        TOPIC | {"failondamage": "FALSE", "damageReport": "/x", "kafka.isolation.level": "read_committed"}
    )
    assert options.client == {"skip.damaged": "true", "isolation.level": "read_committed"}
    assert options.damage_report == "/x"
    with pytest.raises(ConfigError, match="failOnDamage must be 'true' or 'false'"):
        read_options(TOPIC | {"failOnDamage": "no"})
    with pytest.raises(ConfigError, match=r"kafka\.isolation\.level"):
        read_options(TOPIC | {"kafka.isolation.level": "dirty"})
