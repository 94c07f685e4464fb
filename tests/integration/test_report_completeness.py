"""The results of the audit of a topic, for its page."""

from support.command import barnabas_here

from barnabas import Broker, Producer
from barnabas.pipeline.report.page import audited


def test_a_topic_that_the_audit_has_counted() -> None:
    with Broker(storage="memory", config={"num.partitions": 1}) as broker:
        address = str(broker.bootstrap)
        with Producer(address, callback_handler="audit") as producer:
            producer.send_many("t", [b"%d" % n for n in range(10)])
        barnabas_here("audit", "count", "-b", address, "--once")
        found = audited([address], ["t", "another"])
    assert found.keys() == {"t"}
    assert (found["t"].expected, found["t"].arrived, found["t"].sound, found["t"].share) == (10, 10, True, "100 %")
