"""The metadata log of a KRaft cluster: records of Apache Kafka 4.3.1, snapshots, transactions, damage."""

import pytest
from support.kafka_folder import (
    ABORT,
    ACL,
    BEGIN,
    CLUSTER,
    END,
    GONE,
    ORDERS,
    ORDERS_0,
    ORDERS_ID,
    ORDERS_RETENTION,
    SECURITY,
    metadata_batch,
    partition_change,
    quota,
)

from barnabas.core.kraft.image import KraftImage, MetadataReplay, OtherRecord, decode_metadata_record
from barnabas.core.message.codec import Codecs
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.broker_api.operations import Operation
from barnabas.ports.errors import ApiError


def replayed(*values: str) -> KraftImage:
    replay = MetadataReplay(Codecs())
    replay.add_batches(metadata_batch(values))
    return replay.image


def test_replay_records_of_kafka_gives_topics_settings_and_security() -> None:
    image = replayed(*CLUSTER, *SECURITY)
    assert [topic.name for topic in image.topics.values()] == ["orders"]
    partition = image.topics[ORDERS_ID].partitions[0]
    assert (partition.replicas, partition.leader, partition.leader_epoch) == ((1,), 1, 0)
    assert image.configs_of(ResourceKind.TOPIC, "orders") == {"retention.ms": "-1"}
    assert image.configs_of(ResourceKind.BROKER, "") == {"min.insync.replicas": "1"}
    assert image.features == {"metadata.version": 30, "group.version": 1}
    (acl,) = image.acls.values()
    assert (acl.principal, acl.operation) == ("User:alice", Operation.READ)
    credential = image.users["alice"]["SCRAM-SHA-256"]
    assert (credential.iterations, len(credential.salt), len(credential.stored_key.value)) == (8192, 64, 32)
    assert image.next_producer_id == 1000
    assert not image.skipped


def test_leader_change_raises_the_leader_epoch() -> None:
    image = replayed(ORDERS, ORDERS_0, partition_change(ORDERS_ID, 0, leader=2))
    assert (image.topics[ORDERS_ID].partitions[0].leader, image.topics[ORDERS_ID].partitions[0].leader_epoch) == (2, 1)


def test_records_of_a_transaction_count_once_it_has_ended() -> None:
    assert not replayed(BEGIN, GONE).topics
    assert not replayed(BEGIN, GONE, ABORT, END).topics
    assert len(replayed(BEGIN, GONE, END).topics) == 1


def test_quota_is_decoded() -> None:
    image = replayed(quota("bob", "producer_byte_rate", 1024.5))
    assert image.quotas == {(("user", "bob"),): {"producer_byte_rate": 1024.5}}


def test_unknown_records_are_counted_and_the_others_count() -> None:
    image = replayed("017f0000", "0202", ORDERS, "0102")
    assert len(image.topics) == 1
    assert sum(image.skipped.values()) == 3
    assert decode_metadata_record(bytes.fromhex("01140000")) == OtherRecord(record_type=20, known=True)


def test_log_ends_at_the_first_damaged_batch() -> None:
    whole, torn = metadata_batch([ORDERS]), bytearray(metadata_batch([GONE], base_offset=1))
    torn[-1] ^= 1
    replay = MetadataReplay(Codecs())
    assert replay.add_batches(whole + bytes(torn) + bytes(4096)) == (1, 0)
    assert len(replay.image.topics) == 1


def test_batches_below_a_snapshot_are_left_out() -> None:
    replay = MetadataReplay(Codecs())
    replay.add_batches(metadata_batch([ORDERS, ORDERS_0]))
    replay.add_batches(metadata_batch([GONE, ORDERS_RETENTION, ACL]), from_offset=1)
    assert [topic.name for topic in replay.image.topics.values()] == ["orders"]
    assert len(replay.image.acls) == 1


@pytest.mark.parametrize("cut", range(1, 40, 7))
def test_cut_record_is_an_error(cut: int) -> None:
    with pytest.raises(ApiError):
        decode_metadata_record(bytes.fromhex(ORDERS_0)[:cut])
