"""The loads of docs/tables.md: the commands and the reader run as written."""

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas import Admin, Broker, Message, Producer
from barnabas.app.cli.main import main
from barnabas.pipeline.tables.formats import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("spark")]


def _blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def test_loads_and_readers(
    spark: "SparkSession",
    checkout: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (checkout / "docs" / "tables.md").read_text(encoding="utf-8").partition("## Upkeep")[0]
    lines = [line for block in _blocks(page, "sh") for line in block.splitlines() if "--every" not in line]
    assert len(lines) == 4
    monkeypatch.chdir(tmp_path)
    assert spark.range(1).count() == 1
    with (
        Broker(storage="memory", coordination="memory") as broker,
        Admin(broker) as admin,
        Producer(broker) as producer,
    ):
        admin.create_topic("access")
        producer.send_many("access", [Message(b"%d" % n, key=b"%d" % (n % 7)) for n in range(50)])
        producer.flush()
        for line in lines:
            command, *arguments = shlex.split(line.replace("127.0.0.1:9092", broker.bootstrap))
            assert command == "barnabas"
            with pytest.raises(SystemExit) as ended:
                main(arguments)
            assert ended.value.code == 0, (line, capsys.readouterr().err)
    assert capsys.readouterr().out.count("50 new rows") == 3
    names: dict[str, object] = {}
    (reader,) = _blocks(page, "python")
    exec(compile(reader, "tables.md", "exec"), names)  # our own page
    frame, access, per_day = names["frame"], names["access"], names["per_day"]
    assert (names["reached"], len(frame), len(access)) == (50, 50, 50)  # type: ignore[arg-type]  # frames
    assert sum(count for _, _, count in per_day) == 50  # type: ignore[attr-defined]  # rows
    assert open_store(tmp_path / "plain").format == "delta"
    assert {len(file.partition) for file in open_store(tmp_path / "by-host").files()} == {3}
