"""What `barnabas serve` logs, as an operator reads it: on standard error, as text or JSON, from the level asked for."""

import json
from pathlib import Path
from typing import Any

from support.process import BrokerProcess, barnabas, broker_process
from support.waiting import wait_for

from barnabas import Admin, Consumer, Producer


def lines_of(broker: BrokerProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in broker.log().splitlines()]


def test_a_day_of_a_broker_in_json(tmp_path: Path) -> None:
    settings = ["logging.format=json", "group.initial.rebalance.delay.ms=0"]
    with broker_process(tmp_path / "data", *settings) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("orders", partitions=2)
            with Producer(broker.bootstrap) as producer:
                producer.send("orders", b"one")
            with Consumer(broker.bootstrap, group_id="readers", auto_offset_reset="earliest") as consumer:
                consumer.subscribe(["orders"])
                wait_for(lambda: bool(consumer.poll(0.2)))
            admin.alter_topic_configs("orders", {"retention.ms": "60000"})
            admin.delete_topics(["orders"])
        assert broker.stop() == 0
        lines = lines_of(broker)
        assert broker.ready_line.startswith("barnabas ready kafka://")
    assert {line["level"] for line in lines} == {"INFO"}
    assert all(line["time"].endswith("Z") for line in lines)
    told = {line["message"]: line for line in lines}

    def one(start: str) -> dict[str, Any]:
        (found,) = [line for text, line in told.items() if text.startswith(start)]
        return found

    assert one("broker 1 starts: ")["logger"] == "barnabas.app.services"
    assert str(tmp_path / "data") in one("broker 1 starts: ")["message"]
    assert broker.bootstrap in one("broker 1 of cluster ")["message"]
    assert one("topic orders was made: 2 partitions")["topic"] == "orders"
    assert one("group readers: generation 1")["logger"] == "barnabas.core.group"
    assert "left (" in one("group readers: generation 2 has no members")["message"]
    assert one("configuration of topic orders: retention.ms=60000")
    assert one("topic orders was deleted")
    assert [one("broker 1 stops"), one("broker 1 has stopped")] == lines[-2:]


def test_levels_and_form_on_the_command_line(tmp_path: Path) -> None:
    for level, message in (("loud", "'loud' is not one of debug"), ("barnabas.core=", "is not one of debug")):
        wrong = barnabas("serve", "--data", tmp_path / "data", "--log-level", level, expect=2)
        assert message in wrong.stderr.decode()
    wrong = barnabas("serve", "--data", tmp_path / "data", "--log-format", "xml", expect=2)
    assert "one of text, json" in wrong.stderr.decode()
    with broker_process(tmp_path / "quiet", "logging.level=error,barnabas.core.cluster=info") as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("t")
        broker.stop()
        (line,) = broker.log().splitlines()
    assert line.endswith(" INFO barnabas.core.cluster: topic t was made: 1 partition, replication factor 1")
