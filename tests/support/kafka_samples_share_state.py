"""Samples of the APIs of the states of share groups (KIP-932)."""

from support.kafka_sample import ID_A, ID_B, Sample

from barnabas.ports.broker_api.share_state import (
    DeleteShareGroupState,
    DeleteShareGroupStateResult,
    InitializePartition,
    InitializeShareGroupState,
    InitializeShareGroupStateResult,
    ReadPartition,
    ReadShareGroupState,
    ReadShareGroupStateResult,
    ReadShareGroupStateSummary,
    ReadShareGroupStateSummaryResult,
    ReadStatePartition,
    StateBatch,
    StateOutcome,
    StatePartition,
    StateSummary,
    WritePartition,
    WriteShareGroupState,
    WriteShareGroupStateResult,
)
from barnabas.ports.error_codes import ErrorCode

_OUTCOMES = [
    StateOutcome(ID_A, 0),
    StateOutcome(ID_A, 3, ErrorCode.FENCED_STATE_EPOCH, "old"),
    StateOutcome(ID_B, 1, ErrorCode.NOT_COORDINATOR, ""),
]
_OUTCOMES_WIRE = {
    "results": [
        {
            "topic_id": ID_A,
            "partitions": [
                {"partition": 0, "error_code": 0, "error_message": None},
                {"partition": 3, "error_code": 124, "error_message": "old"},
            ],
        },
        {"topic_id": ID_B, "partitions": [{"partition": 1, "error_code": 16, "error_message": ""}]},
    ]
}
_BATCHES = [StateBatch(5, 9, 2, 1), StateBatch(10, 2**62, 0, 32_767)]
_BATCHES_WIRE = [
    {"first_offset": 5, "last_offset": 9, "delivery_state": 2, "delivery_count": 1},
    {"first_offset": 10, "last_offset": 2**62, "delivery_state": 0, "delivery_count": 32_767},
]
_READ = [ReadPartition(ID_A, 0, 7), ReadPartition(ID_A, 3), ReadPartition(ID_B, 1, 2**31 - 1)]
_READ_WIRE = {
    "group_id": "audit",
    "topics": [
        {
            "topic_id": ID_A,
            "partitions": [{"partition": 0, "leader_epoch": 7}, {"partition": 3, "leader_epoch": -1}],
        },
        {"topic_id": ID_B, "partitions": [{"partition": 1, "leader_epoch": 2**31 - 1}]},
    ],
}

INITIALIZE_SHARE_GROUP_STATE = Sample(
    InitializeShareGroupState(
        group_id="audit",
        partitions=[InitializePartition(ID_A, 0, 4), InitializePartition(ID_B, 3, 2**31 - 1, 2**62)],
    ),
    {
        "group_id": "audit",
        "topics": [
            {"topic_id": ID_A, "partitions": [{"partition": 0, "state_epoch": 4, "start_offset": -1}]},
            {"topic_id": ID_B, "partitions": [{"partition": 3, "state_epoch": 2**31 - 1, "start_offset": 2**62}]},
        ],
    },
    InitializeShareGroupStateResult(partitions=_OUTCOMES),
    _OUTCOMES_WIRE,
)

READ_SHARE_GROUP_STATE = Sample(
    ReadShareGroupState(group_id="audit", partitions=_READ),
    _READ_WIRE,
    ReadShareGroupStateResult(
        partitions=[
            ReadStatePartition(ID_A, 0, state_epoch=4, start_offset=5, state_batches=_BATCHES),
            ReadStatePartition(ID_B, 1, ErrorCode.INVALID_REQUEST, "not initialized"),
        ]
    ),
    {
        "results": [
            {
                "topic_id": ID_A,
                "partitions": [
                    {
                        "partition": 0,
                        "error_code": 0,
                        "error_message": None,
                        "state_epoch": 4,
                        "start_offset": 5,
                        "state_batches": _BATCHES_WIRE,
                    }
                ],
            },
            {
                "topic_id": ID_B,
                "partitions": [
                    {
                        "partition": 1,
                        "error_code": 42,
                        "error_message": "not initialized",
                        "state_epoch": 0,
                        "start_offset": -1,
                        "state_batches": [],
                    }
                ],
            },
        ]
    },
)


def _write(complete: int) -> Sample:
    """Return a write in a version without (-1) or with the delivery complete count."""
    count = {} if complete == -1 else {"delivery_complete_count": complete}
    return Sample(
        WriteShareGroupState(
            group_id="audit",
            partitions=[WritePartition(ID_A, 3, 4, 7, 5, _BATCHES, complete)],
        ),
        {
            "group_id": "audit",
            "topics": [
                {
                    "topic_id": ID_A,
                    "partitions": [
                        {
                            "partition": 3,
                            "state_epoch": 4,
                            "leader_epoch": 7,
                            "start_offset": 5,
                            "state_batches": _BATCHES_WIRE,
                            **count,
                        }
                    ],
                }
            ],
        },
        WriteShareGroupStateResult(partitions=_OUTCOMES),
        _OUTCOMES_WIRE,
        older=None if complete == -1 else _write(-1),
        older_until=0,
    )


WRITE_SHARE_GROUP_STATE = _write(2)

DELETE_SHARE_GROUP_STATE = Sample(
    DeleteShareGroupState(group_id="audit", partitions=[StatePartition(ID_A, 0), StatePartition(ID_A, 3)]),
    {
        "group_id": "audit",
        "topics": [{"topic_id": ID_A, "partitions": [{"partition": 0}, {"partition": 3}]}],
    },
    DeleteShareGroupStateResult(partitions=_OUTCOMES),
    _OUTCOMES_WIRE,
)


def _summary(complete: int) -> Sample:
    """Return a summary in a version without (-1) or with the delivery complete count."""
    count = {} if complete == -1 else {"delivery_complete_count": complete}
    return Sample(
        ReadShareGroupStateSummary(group_id="audit", partitions=_READ),
        _READ_WIRE,
        ReadShareGroupStateSummaryResult(
            partitions=[
                StateSummary(
                    ID_A, 0, state_epoch=4, leader_epoch=7, start_offset=2**62, delivery_complete_count=complete
                ),
                StateSummary(
                    ID_B, 1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading", delivery_complete_count=complete
                ),
            ]
        ),
        {
            "results": [
                {
                    "topic_id": ID_A,
                    "partitions": [
                        {
                            "partition": 0,
                            "error_code": 0,
                            "error_message": None,
                            "state_epoch": 4,
                            "leader_epoch": 7,
                            "start_offset": 2**62,
                            **count,
                        }
                    ],
                },
                {
                    "topic_id": ID_B,
                    "partitions": [
                        {
                            "partition": 1,
                            "error_code": 14,
                            "error_message": "loading",
                            "state_epoch": 0,
                            "leader_epoch": 0,
                            "start_offset": -1,
                            **count,
                        }
                    ],
                },
            ]
        },
        older=None if complete == -1 else _summary(-1),
        older_until=0,
    )


READ_SHARE_GROUP_STATE_SUMMARY = _summary(2)
