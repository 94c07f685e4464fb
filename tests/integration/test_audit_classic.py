"""The audit from a classic cluster over a mirror into a current one: stamps travel before the values."""

from typing import Any

import pytest
from support.waiting import wait_for

from barnabas import Broker, Consumer, Message, Producer
from barnabas.app.clients.classic.simple_consumer import ClassicSimpleConsumer
from barnabas.app.mirror import MirrorMaker
from barnabas.audit.auditor import Auditor
from barnabas.audit.envelope import AuditEncoder
from barnabas.audit.publishing import wall_ms
from barnabas.audit.reading import AuditReader
from barnabas.audit.reconcile import reconcile
from barnabas.core.client.errors import EncodeError
from barnabas.ports.errors import ConfigError
from barnabas.testing import TestBroker

PROPS = {"interval.ms": 100, "window.ms": 86_400_000, "instance": "web-1/classic"}


def test_audit_names_messages_lost_and_doubled_from_a_classic_cluster() -> None:
    settings: dict[str, Any] = {"log_flush_interval": 1, "log_flush_scheduler_interval_ms": 20}
    with (
        Broker(listeners=["classic://127.0.0.1:0"], storage="memory", **settings) as classic,
        TestBroker() as current,
        AuditEncoder(current.bootstrap, props=PROPS) as encoder,
    ):
        with Producer(broker_list=f"0:{classic.bootstrap}", encoder=encoder) as producer:
            producer.send_many("orders", [b"%d" % number for number in range(20)])
        with ClassicSimpleConsumer(f"classic://{classic.bootstrap}") as reader:
            wait_for(lambda: len(list(reader.fetch("orders", 0, 0))) == 20)
            copies = [message.value for message in reader.fetch("orders", 0, 0)]
        source = {"coordination": classic, "groupid": "m", "fetcher.backoff.ms": 20, "rebalance.backoff.ms": 100}
        with MirrorMaker([source], {"bootstrap.servers": current.bootstrap}, whitelist="orders") as mirror:
            wait_for(lambda: mirror.copied >= 20 or mirror.wait(0))
        with Producer(current.bootstrap) as copier, current.admin() as admin:
            copier.send("orders", copies[7])
            copier.flush()
            first = min(m.partition for m in messages_of(current.bootstrap))
            admin.delete_records({("orders", first): 2})
        encoder.close()
        auditor = Auditor(current.bootstrap, topics=["orders"], window_ms=86_400_000, interval_s=0.1)
        auditor.count_to_end()
        auditor.close()
        values = [m.value or b"" for m in messages_of(current.bootstrap)]
        assert sorted(values) == sorted([*(b"%d" % number for number in range(2, 20)), b"7"])
        reader_of_reports = AuditReader([current.bootstrap])
        reader_of_reports.read()
        reader_of_reports.close()
        found = reconcile(reader_of_reports.totals, now_ms=wall_ms(), grace_ms=0)
        broker = found.windows[0].tiers[1]
        assert [str(which) for which in broker.lost] == ["web-1/classic 0-1"]
        assert [str(which) for which in broker.doubled] == ["web-1/classic 7"]
        assert not found.unclosed


def messages_of(bootstrap: str) -> list[Message]:
    with Consumer(bootstrap, decoder="audit") as consumer:
        consumer.assign("orders", position="earliest")
        return list(consumer.messages(stop_at_end=True))


def test_value_that_the_encoder_refuses_is_named() -> None:
    with TestBroker() as current, AuditEncoder(current.bootstrap, props=PROPS) as encoder:
        assert encoder.encode("t", None) is None
        assert encoder.encode("_audit", b"x") == b"x"
        with Producer(current.bootstrap, encoder=encoder) as producer, pytest.raises(EncodeError, match="inner"):
            producer.send("t", "text")
    with pytest.raises(ConfigError, match="unknown encoder 'audit'"):
        Producer("127.0.0.1:1", encoder="audit")
