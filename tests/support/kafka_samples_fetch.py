"""Samples of Fetch: from version 13 topics go by id, from 15 a follower sends its broker epoch, from 16 answers have
the addresses of leaders."""

from collections.abc import Sequence
from typing import Any

from attrs import evolve
from support.kafka_sample import ID_A, ID_B, NO_LEADER, Sample

from barnabas.ports.broker_api.cluster import BrokerNode
from barnabas.ports.broker_api.fetch import (
    CurrentLeader,
    DivergingEpoch,
    Fetch,
    FetchPartition,
    FetchResult,
    FetchResultPartition,
)
from barnabas.ports.broker_api.metadata import NO_TOPIC_ID
from barnabas.ports.error_codes import ErrorCode

_NAMES = {ID_A: "clicks", ID_B: "views"}

_REQUEST = Fetch(
    partitions=[
        FetchPartition("", 1, 2**33, 1000, 4, 5, 6, ID_A),
        FetchPartition("", 2, 7, 1001, topic_id=ID_A),
        FetchPartition("", 0, 8, 1002, topic_id=ID_B),
    ],
    max_wait_ms=501,
    min_bytes=502,
    max_bytes=503,
    isolation_level=1,
    replica_id=9,
    replica_epoch=2**34,
    rack_id="rack-7",
)
_RESULT = FetchResult(
    partitions=[
        FetchResultPartition("", 1, ErrorCode.NONE, 2**34, 2**34 - 1, 11, b"some records", topic_id=ID_A),
        FetchResultPartition(
            "", 2, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=CurrentLeader(21, 22), topic_id=ID_A
        ),
        FetchResultPartition(
            "",
            0,
            ErrorCode.NONE,
            12,
            13,
            14,
            b"y" * 200,
            diverging=DivergingEpoch(23, 2**35),
            preferred_read_replica=24,
            topic_id=ID_B,
        ),
    ],
    throttle_ms=15,
    nodes=[
        BrokerNode(node_id=21, host="one.example", port=9092, rack="r1"),
        BrokerNode(node_id=25, host="::1", port=65535),
    ],
)


def _topic(topic_id: bytes, partitions: Sequence[dict[str, Any]], *, ids: bool) -> dict[str, Any]:
    named: dict[str, Any] = {"topic_id": topic_id} if ids else {"topic": _NAMES[topic_id]}
    return {**named, "partitions": partitions}


def _asked(partition: int, epoch: int, offset: int, fetched: int, start: int, most: int) -> dict[str, Any]:
    return {
        "partition": partition,
        "current_leader_epoch": epoch,
        "fetch_offset": offset,
        "last_fetched_epoch": fetched,
        "log_start_offset": start,
        "partition_max_bytes": most,
        "replica_directory_id": None,
        "high_watermark": 2**63 - 1,
    }


def _request_wire(*, ids: bool, replica_epoch: int) -> dict[str, Any]:
    return {
        "replica_id": 9,
        "replica_state": {"replica_id": 9, "replica_epoch": replica_epoch},
        "max_wait": 501,
        "min_bytes": 502,
        "max_bytes": 503,
        "isolation_level": 1,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            _topic(ID_A, [_asked(1, 4, 2**33, 6, 5, 1000), _asked(2, -1, 7, -1, -1, 1001)], ids=ids),
            _topic(ID_B, [_asked(0, -1, 8, -1, -1, 1002)], ids=ids),
        ],
        "forgotten_topics_data": [],
        "rack_id": "rack-7",
        "cluster_id": None,
    }


def _observed(index: int, error: int, offsets: tuple[int, int, int], records: bytes, **tagged: Any) -> dict[str, Any]:
    return {
        "partition_index": index,
        "error_code": error,
        "high_watermark": offsets[0],
        "last_stable_offset": offsets[1],
        "log_start_offset": offsets[2],
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": records,
        "diverging_epoch": {"epoch": -1, "end_offset": -1},
        "current_leader": NO_LEADER,
        **tagged,
    }


def _result_wire(*, ids: bool) -> dict[str, Any]:
    elsewhere = _observed(2, 6, (-1, -1, -1), b"", current_leader={"leader_id": 21, "leader_epoch": 22})
    diverging = {"epoch": 23, "end_offset": 2**35}
    parted = _observed(0, 0, (12, 13, 14), b"y" * 200, preferred_read_replica=24, diverging_epoch=diverging)
    plain = _observed(1, 0, (2**34, 2**34 - 1, 11), b"some records")
    return {
        "throttle_time": 15,
        "error_code": 0,
        "session_id": 0,
        "responses": [_topic(ID_A, [plain, elsewhere], ids=ids), _topic(ID_B, [parted], ids=ids)],
        "node_endpoints": [
            {"node_id": 21, "host": "one.example", "port": 9092, "rack": "r1"},
            {"node_id": 25, "host": "::1", "port": 65535, "rack": None},
        ],
    }


def _named(items: Sequence[Any]) -> list[Any]:
    return [evolve(item, topic=_NAMES[item.topic_id], topic_id=NO_TOPIC_ID) for item in items]


_BY_NAME = Sample(
    evolve(_REQUEST, partitions=_named(_REQUEST.partitions), replica_epoch=-1),
    _request_wire(ids=False, replica_epoch=-1),
    evolve(_RESULT, partitions=_named(_RESULT.partitions)),
    _result_wire(ids=False),
)
_NO_EPOCH = Sample(
    evolve(_REQUEST, replica_epoch=-1),
    _request_wire(ids=True, replica_epoch=-1),
    _RESULT,
    _result_wire(ids=True),
    older=_BY_NAME,
    older_until=12,
)
_IN_SESSION = {
    "session_id": 77,
    "session_epoch": 3,
    "forgotten_topics_data": [
        {"topic_id": ID_A, "partitions": [3, 4]},
        {"topic_id": ID_B, "partitions": [1]},
    ],
}
FETCH = Sample(
    evolve(_REQUEST, session_id=77, session_epoch=3, forgotten=[(ID_A, 3), (ID_A, 4), (ID_B, 1)]),
    {**_request_wire(ids=True, replica_epoch=2**34), **_IN_SESSION},
    evolve(_RESULT, session_id=77),
    {**_result_wire(ids=True), "session_id": 77},
    older=_NO_EPOCH,
    older_until=14,
)
