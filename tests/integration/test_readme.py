"""The Python and the commands of README.md run as written."""

from pathlib import Path

import pytest
from support.doc_commands import ADDRESS, Reader
from support.documents import blocks, lines_of, read

from barnabas import Broker, Producer

PAGE = "README.md"


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    return Reader(tmp_path, monkeypatch)


def python(word: str) -> str:
    return next(block.code for block in blocks(PAGE, "python") if word in block.code)


def test_readme_is_one_page() -> None:
    assert len(read(PAGE).splitlines()) <= 120


def test_the_broker_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed: list[object] = []
    exec(compile(python("Broker("), PAGE, "exec"), {"print": printed.append})  # our own README
    assert printed == [[b"hello"]]
    assert (tmp_path / "data").is_dir()


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.usefixtures("spark")  # the one session of the process: another one first would leave it without its jars
def test_the_way_into_a_warehouse(reader: Reader, tmp_path: Path) -> None:
    from barnabas.pipeline.session import local_session

    names: dict[str, object] = {}
    with Broker(storage="memory") as broker, local_session("readme"):
        with Producer(broker) as producer:
            producer.send_many("events", [b"one", b"two"])
        exec(compile(python("spark").replace(ADDRESS, broker.bootstrap), PAGE, "exec"), names)
        assert sorted(bytes(row.value) for row in names["rows"].collect()) == [b"one", b"two"]  # type: ignore[attr-defined]
        (commands,) = (block for block in blocks(PAGE, "sh") if "barnabas load" in block.code)
        for line in lines_of(commands):
            reader.run_line(line, broker.bootstrap)
    assert "events" in (tmp_path / "warehouse.html").read_text(encoding="utf-8")


def test_the_commands_of_who_runs_brokers(reader: Reader, tmp_path: Path) -> None:
    (tmp_path / "access.log").write_text("a line\n")
    (commands,) = (block for block in blocks(PAGE, "sh") if "barnabas serve" in block.code)
    with Broker(tmp_path / "data") as broker:
        printed = reader.run(commands, broker.bootstrap)
    assert [out for line, out in printed.items() if " consume " in line] == ["a line\n"]
    assert len(printed) == 4
