"""The request ListOffsets, for all clients."""

from collections.abc import Sequence
from typing import Any

from ....ports.broker_api.offsets import ListOffsets, ListOffsetsPartition, ListOffsetsResult
from ....ports.error_codes import ErrorCode
from ....ports.types import TopicPartition
from .client_shell import ClientShell


def list_offsets(
    shell: ClientShell, asked: Sequence[tuple[TopicPartition, int]], isolation_level: int = 0
) -> list[Any]:
    """Return for each (partition, timestamp) the `ListOffsetsResultPartition`, or its `BarnabasError`."""

    def build(group: Sequence[tuple[TopicPartition, int]]) -> ListOffsets:
        return ListOffsets(
            partitions=[
                ListOffsetsPartition(topic=tp.topic, partition=tp.partition, timestamp=timestamp)
                for tp, timestamp in group
            ],
            isolation_level=isolation_level,
        )

    return shell.ask_leaders(asked, lambda item: item[0], build, _outcomes)


def _outcomes(result: ListOffsetsResult) -> list[tuple[ErrorCode, Any]]:
    return [(outcome.error, outcome) for outcome in result.partitions]
