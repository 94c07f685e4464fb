"""Errors name a switch as their user can set it."""

from pathlib import Path

import pytest

from barnabas.app.cli import reaching
from barnabas.pipeline import commands
from barnabas.pipeline.tables.load_plan import TopicRecreated
from barnabas.pipeline.wording import in_python, on_the_command_line
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, BarnabasError, ConfigError


def test_options_of_spark_in_python() -> None:
    assert in_python("gone (set failOnDataLoss=false to read)") == "gone (set fail_on_data_loss=False to read)"


def test_keywords_on_the_command_line() -> None:
    error = ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, "t-0: gone (set fail_on_data_loss=False to go on)")
    with pytest.raises(ApiError) as told, on_the_command_line():
        raise error
    assert str(told.value) == "OFFSET_OUT_OF_RANGE: t-0: gone (give --allow-data-loss to go on)"
    assert told.value.message == "t-0: gone (give --allow-data-loss to go on)"
    with pytest.raises(TopicRecreated, match="with --recreated replace"), on_the_command_line():
        raise TopicRecreated("load it with recreated='replace'")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, r"one way where the cluster is: --bootstrap HOST:PORT; a classic one by --set zk\.connect="),
        ({"bootstrap": "h:1", "recreated": "x"}, "^--recreated must be 'fail' or 'replace'"),
        ({"bootstrap": "h:1", "since": "soon"}, "^--since 'soon' is not a time"),
        (
            {"bootstrap": "h:1", "settings": ["auto.offset.reset=earliest"]},
            "where the table is; --since begins elsewhere",
        ),
        ({"bootstrap": "h:1", "settings": ["enable.auto.commit=true"]}, "--group tells them to a group"),
        ({"bootstrap": "h:1", "settings": ["security.protocol=SSL"]}, "^security.protocol = 'SSL': TLS and SASL"),
    ],
)
def test_wrong_usage_of_a_load(arguments: dict[str, object], text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=text):
        commands.load(["t"], tmp_path, **arguments)  # type: ignore[arg-type]  # as given


def test_a_load_names_a_host_that_is_not_there_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "REACH_S", 0.05)
    with pytest.raises(BarnabasError, match=r"^no broker there: 127\.0\.0\.1:1: Connection refused"):
        commands.load(["t"], tmp_path, "127.0.0.1:1")
