"""docs/tiered.md: its properties and commands, run as they stand there against Moto's server of S3."""

import json
from pathlib import Path

import pytest
from support.doc_commands import Reader
from support.documents import blocks, lines_of
from support.s3_server import KEYS, S3Server
from support.tiered_topics import QUICK, read_all, wait_for, write

from barnabas import Admin, Broker

PAGE = "docs/tiered.md"
COPIED = 200


@pytest.mark.slow
def test_commands_of_the_page_run_from_the_first_topic_to_a_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3_server: S3Server
) -> None:
    bucket = s3_server.make_bucket()
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in zip(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), KEYS, strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT", s3_server.endpoint)
    (properties,) = blocks(PAGE, "properties")
    lines = (line.partition("=") for line in properties.code.splitlines() if not line.startswith("#"))
    given = {key: value for key, _, value in lines}
    assert given["remote.log.storage.manager.class.name"] == "s3://my-bucket/kafka"
    given |= {f"rsm.config.{name}": value for name, value in s3_server.settings.items()}
    config = {
        **QUICK,
        **given,
        "log.segment.bytes": "8000",
        "log.retention.ms": "-1",
        "remote.log.storage.manager.class.name": bucket,
    }
    reader = Reader(tmp_path, monkeypatch)
    first, opened, restored = (lines_of(block) for block in blocks(PAGE, "shell"))

    def run(line: str, bootstrap: str) -> str:
        monkeypatch.setenv("BARNABAS_BOOTSTRAP", bootstrap)
        line = line.replace("s3://my-bucket/kafka", bucket).replace("new-cluster:9092", bootstrap)
        return reader.run_line(line.replace("other-cluster:9092", bootstrap), bootstrap)

    with Broker(tmp_path / "data", config=config) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("clicks", partitions=1)
        write(broker.bootstrap, "clicks", range(300))
        for line in first[:-1]:
            run(line, broker.bootstrap)
        write(broker.bootstrap, "orders", range(300))
        assert "orders" in run(first[-1], broker.bootstrap)

        def is_copied() -> bool:
            rows = json.loads(run(f"{first[-1]} --json", broker.bootstrap))
            return {row["topic"] for row in rows if row["end"] >= COPIED} == {"clicks", "orders"}

        wait_for(is_copied)
    for command in (opened, restored):
        with Broker(tmp_path / command[0].split()[2], config=config) as broker:
            for line in command:
                run(line, broker.bootstrap)
            assert read_all(broker.bootstrap, "orders", 0, COPIED)[:COPIED] == list(range(COPIED))
