"""The replicas of a broker without the broker: what core/replica and the coordinators need, on a disk in memory."""

from collections.abc import Sequence
from typing import Any

from attrs import evolve

from barnabas.adapters.metrics_memory import MemoryMetrics
from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.core.cluster.topics import ALONE_EPOCH, PartitionState, ReplicaId, Topic
from barnabas.core.log.append_origin import AppendOrigin
from barnabas.core.log.config import LogConfig
from barnabas.core.log.manager.log_manager import LogManager
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.replica.partition.fetch_isolation import FetchIsolation
from barnabas.core.replica.partition.partition import Partition
from barnabas.core.replica.replica_manager import AssignedReplica, ReplicaManager
from barnabas.plugins.builtin.deletion import KeepAll
from barnabas.ports.broker_api.fetch import FetchPartition, FetchResultPartition
from barnabas.ports.broker_api.produce import ProducePartition, ProduceResultPartition
from barnabas.ports.broker_api.topics import DeleteRecordsPartition, DeleteRecordsResultPartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.types import TopicPartition
from barnabas.testing.manual_broker import batch

ME, OTHER = 1, 2


def reached(partition: Partition, broker_id: int, offset: int) -> bool:
    """Note that a follower has all records below this offset; return True if that raised the high watermark."""
    assert partition.followers is not None
    epoch = partition.state.broker_epochs.get(broker_id, ALONE_EPOCH)
    follower = partition.followers.of(ReplicaId(broker_id, epoch))
    return partition.follower_fetched(follower, offset, 0, 0.0)


def led_in_sync(
    replicas: ReplicaManager, partition: Partition, isr: Sequence[int], *, leader: int | None = None, epochs: int = 0
) -> None:
    """Have the tree say that these are the replicas, all in sync; `epochs` later and under another leader if wanted."""
    state = partition.state
    topic = Topic(
        name=partition.topic_partition.topic,
        topic_id=partition.topic_id,
        partitions={partition.topic_partition.partition: tuple(isr)},
    )
    changed = evolve(
        state,
        leader=state.leader if leader is None else leader,
        leader_epoch=state.leader_epoch + epochs,
        isr=tuple(isr),
        broker_epochs=dict.fromkeys(isr, replicas.broker_epoch),
        partition_epoch=state.partition_epoch + 1,
    )
    replicas.apply(topic, {partition.topic_partition.partition: changed})


class ReplicaHarness:
    """Broker 1; broker 2 follows where a partition has it."""

    def __init__(self, config: LogConfig | None = None, **others: Any) -> None:
        """`others`: what `ReplicaManager` gets of a broker that is not alone."""
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.metrics = MemoryMetrics()
        self.reports: list[str] = []
        self.disk = MemoryDisk(now_ms=self.clock.now_ms)
        self.logs = LogManager(
            [MemoryLogDir(self.disk)],
            clock=self.clock,
            scheduler=self.scheduler,
            config_for=lambda _: config or LogConfig(),
            codecs=NO_CODECS,
            policy_for=lambda _config, _partition: KeepAll(),
            report=self.reports.append,
            entropy=SeededEntropy(1),
        )
        self.logs.load()
        self.replicas = ReplicaManager(
            broker_id=ME,
            logs=self.logs,
            clock=self.clock,
            scheduler=self.scheduler,
            metrics=self.metrics,
            unknown=lambda topic, number: ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no {topic}-{number}"),
            report=self.reports.append,
            **others,
        )

    def open(
        self, topic: str = "t", number: int = 0, *, replicas: Sequence[int] = (ME,), leader: int = ME
    ) -> Partition:
        key = TopicPartition(topic, number)
        state = PartitionState(leader=leader, leader_epoch=0, isr=tuple(replicas))
        self.replicas.reopen(
            [AssignedReplica(key=key, topic_id=topic.encode().ljust(16), replicas=replicas, state=state)]
        )
        return self.replicas.partitions[key]

    def delete(self, offset: int, *, timeout_ms: float = 1000) -> list[DeleteRecordsResultPartition]:
        """Delete records; return the list that gets the outcome, now or later."""
        observed: list[DeleteRecordsResultPartition] = []

        def done(results: Sequence[DeleteRecordsResultPartition] | ApiError) -> None:
            assert not isinstance(results, ApiError)
            observed.extend(results)

        entry = DeleteRecordsPartition(topic="t", partition=0, offset=offset)
        self.replicas.delete_records([entry], done, timeout_ms=timeout_ms)
        return observed

    def append(
        self, topic: str = "t", *, acks: int = -1, timeout_ms: float = 1000, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> list[ProduceResultPartition]:
        """Append records; return the list that gets the outcome, now or later."""
        observed: list[ProduceResultPartition] = []

        def done(results: Sequence[ProduceResultPartition] | ApiError) -> None:
            assert not isinstance(results, ApiError)
            observed.extend(results)

        entry = ProducePartition(topic, 0, batch(b"x"))
        self.replicas.append([entry], done, acks=acks, timeout_ms=timeout_ms, origin=origin)
        return observed

    def read(
        self, isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK, *, offset: int = 0, max_wait_ms: float = 0
    ) -> list[FetchResultPartition]:
        observed: list[FetchResultPartition] = []

        def done(results: Sequence[FetchResultPartition] | ApiError) -> None:
            assert not isinstance(results, ApiError)
            observed.extend(results)

        entry = FetchPartition("t", 0, offset, 1 << 20)
        self.replicas.read([entry], done, max_bytes=1 << 20, max_wait_ms=max_wait_ms, isolation=isolation)
        return observed
