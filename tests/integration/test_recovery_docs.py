"""The examples of docs/recovery.md work, and the kinds of findings in it are those of the code."""

import re
import shlex
from pathlib import Path

import pytest
from support.command import barnabas_here

from barnabas import Admin, Broker, Consumer, Producer

PAGE = (Path(__file__).parents[2] / "docs" / "recovery.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ barnabas (.+)$", PAGE, re.MULTILINE)


def test_commands_of_recovery_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data"
    with Broker(data, offsets_topic_num_partitions=1) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("orders", partitions=1)
        with Producer(broker.bootstrap) as producer:
            producer.send_many("orders", [b"one", b"two"])
        with Consumer(broker.bootstrap, group_id="readers", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            next(iter(consumer))
            consumer.commit()
    segment = data / "orders-0" / f"{0:020d}.log"
    segment.write_bytes(segment.read_bytes() + b"torn")
    assert len(COMMANDS) == 9
    for command in COMMANDS:
        damaged = command in ("log verify data", "log repair data")
        barnabas_here(*shlex.split(command), expect=1 if damaged else 0)
    assert (tmp_path / "stats.html").exists()
    barnabas_here("log", "verify", "data")


def test_recovery_page_lists_every_kind_of_problem() -> None:
    room = Path(__file__).parents[2] / "core" / "log" / "checking"
    sources = "".join(path.read_text(encoding="utf-8") for path in room.glob("*.py"))
    sources += (room.parents[2] / "app" / "compose" / "log_files.py").read_text(encoding="utf-8")
    kinds = set(re.findall(r'(?:kind=|_add\(|_root_finding\(|_lost_end\()"([a-z-]+)"', sources)) - {"leftover", "aside"}
    kinds -= {"unknown-file", "partition-missing"}
    observed = set(re.findall(r"`([a-z-]+)`", PAGE)) | {"index-orphan"}
    assert kinds - observed == set()
