"""Errors name a switch as their user can set it."""

from pathlib import Path

import pytest

from barnabas.app.cli import reaching
from barnabas.pipeline import commands
from barnabas.pipeline.option_names import DataLoss, Option, on_command_line
from barnabas.pipeline.spark.errors import SparkFailed
from barnabas.pipeline.tables.load_plan import TopicRecreated
from barnabas.ports.errors import BarnabasError, ConfigError


def test_spark_error_carries_option_with_python_spelling() -> None:
    error = SparkFailed("t-0: gone (set failOnDataLoss=false to read what remains)")
    assert error.option is Option.ALLOW_DATA_LOSS
    assert str(error) == "t-0: gone (set fail_on_data_loss=False to read what remains)"
    damaged = SparkFailed("CORRUPT_MESSAGE: t-0; set failOnDamage=false to continue behind it")
    assert str(damaged) == "CORRUPT_MESSAGE: t-0; set skip_damaged=True to continue behind it"
    assert SparkFailed("no space left").option is None


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            DataLoss("t-0: gone (set fail_on_data_loss=False to continue without them)"),
            "OFFSET_OUT_OF_RANGE: t-0: gone (give --allow-data-loss to continue without them)",
        ),
        (TopicRecreated("set recreated='replace' to drop the rows"), "give --recreated replace to drop the rows"),
        (SparkFailed("set failOnDamage=false to continue"), "give --skip-damaged to continue"),
    ],
)
def test_command_spells_option_that_error_carries(error: BarnabasError, text: str) -> None:
    with pytest.raises(BarnabasError) as raised, on_command_line():
        raise error
    assert str(raised.value) == text


def test_error_without_option_passes_command_line_unchanged() -> None:
    error = ConfigError("set fail_on_data_loss=False")
    with pytest.raises(ConfigError) as raised, on_command_line():
        raise error
    assert raised.value is error


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, r"one address of the cluster, by --bootstrap HOST:PORT; of a classic .*--set zk\.connect="),
        ({"bootstrap": "h:1", "recreated": "x"}, "^recreated must be 'fail' or 'replace'"),
        ({"bootstrap": "h:1", "since": "soon"}, "^--since 'soon' is not a time"),
        (
            {"bootstrap": "h:1", "settings": ["auto.offset.reset=earliest"]},
            r"offsets of the table; since_ms \(--since\) starts elsewhere",
        ),
        ({"bootstrap": "h:1", "settings": ["enable.auto.commit=true"]}, r"group \(--group\) commits them to a group"),
        (
            {"bootstrap": "h:1", "settings": ["security.protocol=SASL_SSL"]},
            "^security.protocol=SASL_SSL needs sasl.mechanism",
        ),
        (
            {"bootstrap": "h:1", "settings": ["sasl.password=x"]},
            "^--set sasl.password: others on this machine can read",
        ),
    ],
)
def test_wrong_usage_of_a_load(arguments: dict[str, object], text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=text):
        commands.load(["t"], tmp_path, **arguments)  # type: ignore[arg-type]  # as given


def test_a_load_names_a_host_that_is_not_there_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "REACH_S", 0.05)
    with pytest.raises(BarnabasError, match=r"^no broker there: 127\.0\.0\.1:1: Connection refused"):
        commands.load(["t"], tmp_path, "127.0.0.1:1")
