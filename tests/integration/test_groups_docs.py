"""The commands of docs/groups.md run as written."""

from pathlib import Path

import pytest
from support.doc_commands import Reader
from support.documents import blocks, read

from barnabas import Consumer, ShareConsumer
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.testing import TestBroker

PAGE = "docs/groups.md"


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    return Reader(tmp_path, monkeypatch)


def test_commands_of_the_groups_page_do_what_it_says(reader: Reader) -> None:
    look, settings, change, share, letters = blocks(PAGE, "sh")
    with TestBroker() as broker:
        broker.create_topic("orders", partitions=1)
        broker.produce("orders", [b"one", b"two", b"three"])
        with Consumer(
            broker.bootstrap, group_id="billing", group_protocol="consumer", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(["orders"])
            assert len([message for message, _ in zip(consumer, range(2), strict=False)]) == 2
            consumer.commit()
            _, listed, by_lag, trend, described, members, state = reader.run(look, broker.bootstrap).values()
        assert "billing" in listed
        assert "consumer" in by_lag
        assert "DONE_IN" in trend
        assert described.splitlines()[0].startswith("billing  Stable  consumer  epoch")
        assert {"EPOCH", "PROTOCOL", "TARGET"} <= set(members.split())
        assert "uniform" in state
        printed = list(reader.run(settings, broker.bootstrap).values())
        assert "consumer.heartbeat.interval.ms" in printed[2]
        reader.run(letters, broker.bootstrap)
        broker.create_topic("images", partitions=1)
        broker.produce("images", [b"a", b"b", b"c"])
        with ShareConsumer(broker.bootstrap, group_id="thumbnails") as shared:
            shared.subscribe("images")
            assert shared.poll(30) is not None
            shared.commit_sync()
        starts, _, described, _ = reader.run(share, broker.bootstrap).values()
        assert starts.splitlines()[1].split()[:2] == ["images", "0"]
        assert described.splitlines()[0].startswith("thumbnails  Empty  share")
        assert described.splitlines()[1] == "dead letters: 0 in dlq.thumbnails"
        assert described.splitlines()[3].split()[:5] == ["images", "0", "1", "3", "2"]
        with broker.admin() as admin:
            entries = admin.describe_configs(ResourceKind.GROUP, "thumbnails", ["errors.deadletterqueue.topic.name"])
            assert [entry.value for entry in entries] == ["dlq.thumbnails"]
            dry, done, deleted = reader.run(change, broker.bootstrap).values()
            assert admin.group_offsets("billing") == {}
        assert dry.splitlines()[1].split()[3] == "0"
        assert done.splitlines()[1].split()[3] == "1"
        assert deleted == "deleted the positions of billing in orders:0\n"


def test_every_column_that_the_page_explains_is_one_of_the_commands() -> None:
    text = read("app/cli/groups/command.py")
    for column in ("lag_time", "trend", "time_trend", "done_in", "acquired", "available", "given_up", "deliveries"):
        assert f'"{column}"' in text
        assert f"`{column}`" in read(PAGE)
