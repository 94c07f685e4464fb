"""A topic created again under the name of an earlier one begins empty, at offset 0."""

from barnabas.ports.broker_api.topics import DeleteRecords, DeleteRecordsPartition, DeleteTopics
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.manual_broker import ManualBroker


def test_after_a_restart_nothing_is_remembered_of_the_deleted_one() -> None:
    broker = ManualBroker()
    broker.create("again")
    broker.produce("again", b"one", b"two", b"three")
    wanted = DeleteRecordsPartition(topic="again", partition=0, offset=2)
    assert broker.ask(DeleteRecords(partitions=[wanted])).partitions[0].low_watermark == 2
    broker.restart()
    assert broker.values("again", 2) == [b"three"]
    assert broker.ask(DeleteTopics(names=["again"])).topics[0].error is ErrorCode.NONE
    broker.create("again")
    assert broker.produce("again", b"new").base_offset == 0
    assert broker.values("again") == [b"new"]
