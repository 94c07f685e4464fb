"""`barnabas query` and `barnabas sql`: docs/queries.md does what it says, also what it only describes."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.command import barnabas_here
from support.schema_registry import serving
from support.waiting import PATIENCE_S

from barnabas import Broker, Producer
from barnabas.pipeline.queries import query, spark_sql
from barnabas.pipeline.spark.errors import SparkFailed
from barnabas.pipeline.tables.formats import open_store
from barnabas.pipeline.tables.state import TableChange, TopicState
from barnabas.ports.errors import ConfigError
from barnabas.schemas import AvroEncoder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADDRESS = "localhost:9092"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(storage="memory", config={"num.partitions": 1, "log.retention.ms": -1}) as broker:
        yield broker


@pytest.fixture
def address(broker: Broker) -> str:
    return str(broker.bootstrap)


@pytest.fixture(scope="module")
def page(checkout: Path) -> str:
    return (checkout / "docs" / "queries.md").read_text(encoding="utf-8")


def said(page: str) -> list[tuple[str, str]]:
    """(command, what it prints) of the page's consoles."""
    consoles = "".join(re.findall(r"^```console\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    return re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", consoles, re.MULTILINE)


def run(command: str, address: str) -> str:
    before, _, words = command.rpartition(" | ")
    given = subprocess.run(["bash", "-c", before], check=True, capture_output=True).stdout if before else b""
    program, *arguments = shlex.split(words.replace(ADDRESS, address))
    assert program == "barnabas"
    return barnabas_here(*arguments, stdin=given).stdout.decode()


def test_examples_of_queries_page_give_documented_output(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Broker(storage="memory", config={"num.partitions": 1, "log.retention.ms": -1}) as broker:
        as_said(page, str(broker.bootstrap))


def as_said(page: str, address: str) -> None:
    commands = [(command, output) for command, output in said(page) if " sql " not in command]
    assert len(commands) > 5
    for command, output in commands:
        printed = run(command, address)
        assert printed.split("\n") == output.split("\n") or not output, command
    printed_in_python: list[object] = []
    for block in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        exec(compile(block.replace(ADDRESS, address), "queries.md", "exec"), {"print": printed_in_python.append})
    assert printed_in_python == [{"page": "/cart", "n": 2}, ['{"page": "/"}', '{"page": "/cart"}']]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_page_on_spark(page: str, address: str, spark: "SparkSession", tmp_path: Path) -> None:
    with Producer(address) as producer:
        producer.send_many("views", [b"a", b"b", b"c"])
        producer.send("odd-name", b"x;y")
    ((command, output),) = [(command, output) for command, output in said(page) if " sql " in command]
    assert re.fullmatch(r"n +newest\n\d+ +\d+\n", output)
    assert re.fullmatch(r"n +newest\n\d+ +\d+\n", run(command, address))
    folder = loaded(tmp_path / "lake")
    text = "-- two; of them\nselect 1 as one; select count(*) as n from lake_events where value <> ';';"
    done = barnabas_here("sql", "-b", address, "--table", folder, "--format", "json", stdin=text.encode())
    assert [json.loads(line) for line in done.stdout.decode().splitlines()] == [{"one": 1}, {"n": 3}]
    failed = barnabas_here("sql", "-b", address, "-e", "select nix from `odd-name`", expect=1)
    assert len(failed.stderr.splitlines()) < 4
    assert b'"level"' not in failed.stderr  # of Spark's own log
    assert b"nix" in failed.stderr


@pytest.fixture(scope="module")
def events(broker: Broker) -> str:
    """A topic of 90 JSON objects, 1 s apart, and one value that is none."""
    with Producer(broker) as producer:
        for number in range(90):
            value = {
                "n": number,
                "Status": [200, "odd"][number % 2],
                "tags": ["a"],
                "timestamp": "mine",
                "status": None,
            }
            producer.send(
                "events",
                json.dumps(value).encode(),
                b"k%d" % (number % 3),
                timestamp_ms=1_700_000_000_000 + number * 1000,
            )
        producer.send("events", b"no JSON", timestamp_ms=1_700_000_090_000)
        producer.send("bytes.raw", b"\xff", headers=[("h", b"1")])
    return str(broker.bootstrap)


def rows(sql: str, address: str = "", **how: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in query(sql, address, **how).to_pylist()]


def test_fields_and_what_is_no_field(events: str) -> None:
    assert rows("select sum(n), count(n), count(*), min(key) from events", events) == [(4005, 90, 91, "k0")]
    assert rows("select distinct status, tags, json.timestamp from events where n < 2 order by all", events) == [
        ("200", ["a"], "mine"),
        ("odd", ["a"], "mine"),
    ]
    assert rows('select * from "bytes.raw"', events)[0][:2] == (None, b"\xff")
    assert rows("select headers[1].key, length(headers[1].value::varchar) from bytes.raw", events) == [("h", 1)]
    assert rows(
        "select a.n from events a join EVENTS b on a.n = b.n + 88 where a.timestamp > '2023-11-14 22:14:00+00'", events
    ) == [(88,), (89,)]


def test_queries_are_bounded_by_offsets_timestamps_and_partitions(events: str) -> None:
    assert rows("select count(*) from events", events, last=10) == [(10,)]
    assert rows("select count(*) from events", events, since="2023-11-14T22:13:30", until="1700000020000") == [(10,)]
    assert rows('select count(*) from events where "offset" between 5 and 9 and partition in (0, 7)', events) == [(5,)]
    assert rows("select count(*) from events where timestamp >= timestamp '2023-11-14 22:14:40'", events) == [(11,)]
    assert rows("select count(*) from events where partition = 7", events) == [(0,)]


@pytest.mark.parametrize(
    ("sql", "observed"),
    [
        ("select offset from events", 'the column is "offset", in double quotes'),
        ("select nix from events", 'column "nix" not found: events has key, value, topic, .*, tags, json$'),
        ("select e.statis from events e", 'column "statis" not found; did you mean .[Ss]tatus.[?] events has key, '),
        ("select * exclude (tacks) from events", 'column "tacks" not found; did you mean .tags.[?]'),
        ("select 1 from evnets", "there is no 'evnets'; did you mean 'events'[?] topics: "),
        ("select 1 from nope", "there is no 'nope': topics: .*events"),
        ("drop table events", "a query is one SELECT"),
        ("select 1; select 2", "2 statements; give one SELECT"),
        ("select 1 from lake.nope", "there is no 'lake.nope'"),
    ],
)
def test_errors_of_one_line(events: str, sql: str, observed: str) -> None:
    with pytest.raises(ConfigError, match=observed) as caught:
        query(sql, events)
    assert "\n" not in str(caught.value)


def columns(sql: str, address: str, **how: Any) -> list[str]:
    return list(query(sql, address, **how).column_names)


def test_star_shows_json_objects_once(broker: Broker) -> None:
    with Producer(broker) as producer:
        producer.send("objects", b'{"page": "/", "user": {"name": "ann"}}')
        producer.send("objects", None, b"a tombstone")
        producer.send("timed", b'{"timestamp": 1, "n": 2}')
    address = str(broker.bootstrap)
    record = ["key", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert columns("select * from objects", address) == [*record, "page", "user"]
    assert columns("select o.* exclude (value, json) from objects o", address) == [*record, "page", "user"]
    assert columns("select * from objects where value is not null", address)[1] == "value"
    assert columns("select * from objects where json.page = '/'", address)[-1] == "json"
    assert columns("select columns('val.*') from objects", address) == ["value"]
    with_value = [record[0], "value", *record[1:]]
    assert columns("select * from timed", address) == [*with_value, "n"], "the field timestamp is in the value only"
    assert columns("select json.timestamp from timed", address) == ["timestamp"]


def test_last_is_number_of_newest_messages_over_all_partitions() -> None:
    with Broker(storage="memory", config={"num.partitions": 3, "log.retention.ms": -1}) as broker:
        with Producer(broker) as producer:
            for number in range(30):
                partition = 0 if number < 20 else number % 3
                producer.send(
                    "spread", b'{"n": %d}' % number, partition=partition, timestamp_ms=1_700_000_000_000 + number
                )
        address = str(broker.bootstrap)
        assert rows("select n from spread order by n", address, last=4) == [(26,), (27,), (28,), (29,)]
        assert rows("select n from spread where partition = 0", address, last=4) == [(27,)]
        assert rows("select count(*) from spread", address, last=100) == [(30,)]
        assert rows("select n from spread order by n", address, last=2, until="1700000000010") == [(8,), (9,)]


def test_times_that_are_none(events: str) -> None:
    with pytest.raises(ConfigError, match="--since 'noonish' is not a time: give 2026-01-31"):
        query("select 1 from events", events, since="noonish")


def loaded(folder: Path) -> Path:
    """Return a table of three messages, made as `load` makes it."""
    table = open_store(folder)
    with table.locked():
        staging = table.begin_commit()
        file = Path("topic=events", "day=2023-11-14", "part-00000.parquet")
        (staging.folder / file).parent.mkdir(parents=True)
        columns = {
            "key": pa.array([b"k0", b"k1", b"k2"]),
            "value": pa.array([b'{"n": 1}', b'{"n": 2}', b'{"n": 50}']),
            "partition": pa.array([0, 0, 0], pa.int32()),
            "offset": pa.array([0, 1, 2], pa.int64()),
            "timestamp": pa.array([1_700_000_000_000 + n for n in range(3)], pa.timestamp("ms", "UTC")).cast(
                pa.timestamp("us", "UTC")
            ),
            "timestampType": pa.array([0, 0, 0], pa.int32()),
        }
        pq.write_table(pa.table(columns), staging.folder / file)
        state = {"events": TopicState(next_offsets={"0": 3})}
        table.commit(staging, TableChange(topics=state, rows=3, files=[file.as_posix()]))
    return folder


def test_query_joins_loaded_table_with_topics(events: str, tmp_path: Path) -> None:
    folder = loaded(tmp_path / "lake")
    assert rows("select sum(n), max(value), min(day)::varchar from lake.events", tables=[folder]) == [
        (53, '{"n": 50}', "2023-11-14")
    ]
    joined = "select e.n from events e join old.events o on e.n = o.n and e.key = o.key order by 1"
    assert rows(joined, events, tables={"old": folder}) == [(50,)]
    assert rows("select count(*) from lake.events", tables=[folder], since="1700000000001") == [(2,)]
    with pytest.raises(ConfigError, match="table lake has no topic 'nope'; it has events"):
        query("select 1 from lake.nope", tables=[folder])


def test_values_with_a_schema(broker: Broker) -> None:
    text = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "n", "type": "int"}, {"name": "offset", "type": "string"}],
    }
    with serving(str(broker.bootstrap)) as url:
        with Producer(broker, encoder=AvroEncoder(url, text)) as producer:
            producer.send_many("orders", [{"n": n, "offset": f"o{n}"} for n in range(5)])
        with Producer(broker) as producer:
            producer.send("orders", b"no schema", b"k")
            producer.send("plain", b'{"n": 7}')
        address = str(broker.bootstrap)
        assert rows('select sum(n), max(value.offset), max("offset") from orders', address, registry=url) == [
            (10, "o4", 5)
        ]
        errors = rows("select value, value_error from orders where key = 'k'", address, registry=url)
        assert errors == [(None, "no schema's id: expected 00 and four bytes of an id, got 6e6f207363")]
        joined = "select count(*) from orders o, plain p where o.n < p.n"
        assert rows(joined, address, registry=url) == [(5,)]


def test_the_prompt_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter(["select 1", "", "; -- more", "boom; select 2;", "", "quit"])
    asked: list[str] = []
    ran: list[str] = []
    observed: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return next(lines)

    def run_statement(spark: object, sql: str, format_: str) -> None:
        ran.append(sql)
        if sql == "boom":
            raise SparkFailed("no such thing")

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr(spark_sql, "run_statement", run_statement)
    spark_sql.converse(None, "table", observed.append)  # type: ignore[arg-type]  # nothing is asked of it
    assert ran == ["select 1", "boom"]
    assert observed == ["no such thing"]
    assert asked == ["sql> ", "...> ", "...> ", "sql> ", "sql> ", "sql> "]
    assert spark_sql.statements("a ';' `;` ; /* ; */ b \n--;\n; ;") == ["a ';' `;`", "b"]


def test_memory_is_bounded(broker: Broker) -> None:
    with Producer(broker) as producer:
        producer.send_arrow(pa.table({"value": [b"%06d" % n * 50 for n in range(100_000)]}), "much").result(PATIENCE_S)
    found = rows("select count(distinct value), max(length(value)) from much", str(broker.bootstrap), memory="60MB")
    assert found == [(100_000, 300)]


def test_query_command_writes_csv_json_and_rejects_unknown_formats(events: str, tmp_path: Path) -> None:
    sql = "select n, tags from events where n < 2 order by n"
    printed = barnabas_here("query", "-b", events, "--format", "csv", sql).stdout.decode()
    assert printed == 'n,tags\n0,"[""a""]"\n1,"[""a""]"\n'
    barnabas_here("query", "-b", events, "-o", tmp_path / "two.json", sql + ";")
    assert [json.loads(line)["n"] for line in (tmp_path / "two.json").read_text().splitlines()] == [0, 1]
    refused = barnabas_here("query", "-b", events, "-o", tmp_path / "two.txt", sql, expect=2)
    assert b"say with --format" in refused.stderr
    assert barnabas_here("query", "-b", events, "-o", tmp_path / "x.csv", "select 1").stdout.startswith(b"1 row in ")
    for command in (("query", "select 1 from empty.t"), ("sql", "-e", "select 1")):
        no_table = barnabas_here(*command, "--table", f"empty={tmp_path}", expect=1)
        assert b"is not a loaded table" in no_table.stderr
    away = barnabas_here("query", "-b", "127.0.0.1:1", "select 1 from t", expect=1)
    assert b"127.0.0.1:1" in away.stderr
