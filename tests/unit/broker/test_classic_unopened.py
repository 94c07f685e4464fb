"""A classic log that cannot be opened at the start of its broker is not taken for one that does not exist."""

from support.classic_frames import message_set

from barnabas.ports.broker_api.classic import (
    ClassicFetch,
    ClassicFetchPartition,
    ClassicFetchResultPartition,
    ClassicOffsets,
    ClassicProduce,
    ClassicProducePartition,
    ClassicProduceResultPartition,
)
from barnabas.ports.broker_api.offsets import EARLIEST, LATEST
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.manual_broker import ManualBroker

FIRST = "00000000000000000000.kafka"


def put(broker: ManualBroker, records: bytes) -> ClassicProduceResultPartition:
    place = ClassicProducePartition("t", 0, memoryview(bytearray(records)))
    return broker.ask(ClassicProduce(partitions=[place])).partitions[0]


def take(broker: ManualBroker) -> ClassicFetchResultPartition:
    return broker.ask(ClassicFetch(partitions=[ClassicFetchPartition("t", 0, 0, 1000)])).partitions[0]


def test_unreadable_classic_log_is_left_untouched_and_opens_after_repair() -> None:
    broker = ManualBroker(
        listeners="classic://broker:9093", log_flush_interval_messages=1, log_segment_bytes=14, num_partitions=1
    )
    records = message_set(b"one", b"two")
    put(broker, records)
    put(broker, records)
    assert sorted(broker.disk.folders["t-0"])[0] == FIRST
    assert len(broker.disk.folders["t-0"]) == 2
    broker.stop()
    hidden = broker.disk.folders["t-0"][FIRST].data[3:]
    del broker.disk.folders["t-0"][FIRST].data[3:]
    broker.node = broker._started()

    assert put(broker, records).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert take(broker) == ClassicFetchResultPartition()
    for time_ms in (EARLIEST, LATEST):  # 0 would be wrong
        asked = ClassicOffsets(topic="t", partition=0, time_ms=time_ms, max_offsets=1)
        assert broker.ask(asked).error is ErrorCode.KAFKA_STORAGE_ERROR

    broker.disk.folders["t-0"][FIRST].data += hidden
    result = put(broker, records)
    assert (result.error, result.next_offset) == (ErrorCode.NONE, 3 * len(records))
    assert not [folder for folder in broker.disk.folders if folder.endswith("-stray")]
