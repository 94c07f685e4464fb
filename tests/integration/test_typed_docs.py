"""Encoders, typed columns and typed loads of docs/schemas.md, run as written."""

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.schema_registry import serving
from support.waiting import PATIENCE_S

from barnabas import Broker, Consumer, Producer
from barnabas.app.cli.main import main
from barnabas.pipeline.table import read_table
from barnabas.schemas import AvroEncoder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_examples_of_schemas_page_run(
    checkout: Path,
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (checkout / "docs" / "schemas.md").read_text(encoding="utf-8").partition("## Encoders")[2]
    encoders, columns = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    [command] = re.findall(r"^```sh\nbarnabas (.*?)\n```", page, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    with Broker(storage="memory", coordination="memory") as broker, serving(broker.bootstrap) as url:

        def here(text: str) -> str:
            return text.replace("127.0.0.1:9092", broker.bootstrap).replace("http://127.0.0.1:8081", url)

        names: dict[str, object] = {"__name__": "example"}
        exec(compile(here(encoders), "schemas.md", "exec"), names)  # our own page
        assert capsys.readouterr().out == "Order(id=1, article='a book', note=None)\n"
        exec(compile(here(columns), "schemas.md", "exec"), names)
        assert "|     0|  1| a book|" in capsys.readouterr().out
        with Consumer(broker, decoder=AvroEncoder(url)) as consumer:
            consumer.assign("totals", position="earliest")
            read: list[object] = [message.value for message in consumer.messages(stop_at_end=True)]
            assert read == [{"article": "a book", "count": 1}]
        with Producer(broker) as producer:
            producer.send("orders", b"no order").result(PATIENCE_S)
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(here(command).replace("\\\n", " ")))
        said = capsys.readouterr()
        assert ended.value.code == 0, said.err
        assert "1 new row in 1 file in warehouse" in said.out
        assert "1 row does not decode and is in quarantine, in warehouse/_quarantine" in said.err
        assert [row.id for row in read_table(spark, "warehouse").select("value.id").collect()] == [1]
        assert [bytes(row.value) for row in read_table(spark, "warehouse/_quarantine").collect()] == [b"no order"]
