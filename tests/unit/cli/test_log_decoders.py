"""Decoders of `barnabas log dump`."""

import json

from barnabas.app.clients import internal_records as decoders
from barnabas.core.coordinator.group import consumer_records
from barnabas.core.coordinator.group.consumer_records import ConsumerRecord
from barnabas.core.coordinator.group.expressions import ResolvedExpression
from barnabas.core.coordinator.group.share_group_records import (
    ShareGroupKey,
    ShareRecord,
    StoredCurrentAssignment,
    StoredShareGroup,
    StoredShareMember,
    StoredShareValue,
    StoredStatePartitions,
    StoredTargetAssignment,
    StoredTopicPartitions,
    encode_share_key,
    encode_share_value,
)
from barnabas.core.message.message import Message

ID = bytes(15) + b"\1"
TEXT_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def decoded(kind: ShareRecord, value: StoredShareValue | None, member_id: str = "") -> object:
    key = encode_share_key(ShareGroupKey(kind, "g", member_id))
    content = None if value is None else encode_share_value(value)
    found = decoders.offsets(Message(content, key=key))
    assert found["key"] == {"type": int(kind), "group": "g", **({"member": member_id} if member_id else {})}
    return json.loads(json.dumps(found["value"]))


def decoded_consumer(kind: ConsumerRecord, value: bytes | None, name: str = "") -> object:
    found = decoders.offsets(Message(value, key=consumer_records.encode_key(kind, "g", name)))
    named = "regex" if kind is ConsumerRecord.REGULAR_EXPRESSION else "member"
    assert found["key"] == {"type": int(kind), "group": "g", **({named: name} if name else {})}
    return json.loads(json.dumps(found["value"]))


def test_records_of_consumer_groups_are_decoded() -> None:
    member = consumer_records.StoredConsumerMember(
        member_id="m", client_id="c", client_host="/h", subscribed_topic_names=("t",)
    )
    assert decoded_consumer(ConsumerRecord.MEMBER, consumer_records.encode_member(member), "m") == {
        "instance_id": None,
        "rack_id": None,
        "client_id": "c",
        "client_host": "/h",
        "subscribed_topic_names": ["t"],
        "subscribed_topic_regex": None,
        "rebalance_timeout_ms": -1,
        "server_assignor": None,
        "classic_protocol": None,
    }
    epoch = consumer_records.encode_epoch(4, 5)
    assert decoded_consumer(ConsumerRecord.GROUP, epoch) == {"epoch": 4, "metadata_hash": 5}
    assert decoded_consumer(ConsumerRecord.GROUP, None) is None
    assert decoded_consumer(ConsumerRecord.TARGET_ASSIGNMENT, epoch) == {
        "assignment_epoch": 4,
        "assignment_timestamp": 5,
    }
    assignment = [{"topic_id": TEXT_ID, "partitions": [0, 2]}]
    target = consumer_records.encode_target({ID: [0, 2]})
    assert decoded_consumer(ConsumerRecord.TARGET_ASSIGNMENT_OF_MEMBER, target, "m") == {"topic_partitions": assignment}
    current = consumer_records.StoredConsumerAssignment(
        member_epoch=4, previous_member_epoch=3, state=1, assigned={ID: {0: 4, 2: 4}}, revoking={ID: {1: 3}}
    )
    assert decoded_consumer(ConsumerRecord.CURRENT_ASSIGNMENT, consumer_records.encode_current(current), "m") == {
        "member_epoch": 4,
        "previous_member_epoch": 3,
        "state": 1,
        "assigned_partitions": assignment,
        "partitions_pending_revocation": [{"topic_id": TEXT_ID, "partitions": [1]}],
    }
    resolved = ResolvedExpression(frozenset({"t"}), 7, 8)
    assert decoded_consumer(ConsumerRecord.REGULAR_EXPRESSION, consumer_records.encode_expression(resolved), "t.*") == {
        "topics": ["t"],
        "version": 7,
        "timestamp": 8,
    }


def test_records_of_share_groups_are_decoded() -> None:
    member = StoredShareMember(client_id="c", client_host="/h", subscribed_topic_names=("t",))
    assert decoded(ShareRecord.MEMBER, member, "m") == {
        "rack_id": None,
        "client_id": "c",
        "client_host": "/h",
        "subscribed_topic_names": ["t"],
    }
    assert decoded(ShareRecord.GROUP, StoredShareGroup(4, 5)) == {"epoch": 4, "metadata_hash": 5}
    assert decoded(ShareRecord.GROUP, None) is None
    assert decoded(ShareRecord.TARGET_ASSIGNMENT, StoredTargetAssignment(4, 5)) == {
        "assignment_epoch": 4,
        "assignment_timestamp": 5,
    }
    assignment = [{"topic_id": TEXT_ID, "partitions": [0, 2]}]
    assert decoded(ShareRecord.TARGET_ASSIGNMENT_OF_MEMBER, {ID: (0, 2)}, "m") == {"topic_partitions": assignment}
    assert decoded(ShareRecord.CURRENT_ASSIGNMENT, StoredCurrentAssignment(4, 3, {ID: (0, 2)}), "m") == {
        "member_epoch": 4,
        "previous_member_epoch": 3,
        "state": 0,
        "assigned_partitions": assignment,
    }


def test_the_initialized_partitions_of_a_share_group_are_decoded() -> None:
    topics = {ID: StoredTopicPartitions("t", (1,))}
    found = decoded(ShareRecord.STATE_PARTITIONS, StoredStatePartitions(topics, {}, {ID: "u"}))
    assert found == {
        "initializing_topics": [{"topic_id": TEXT_ID, "topic_name": "t", "partitions": [1]}],
        "initialized_topics": [],
        "deleting_topics": [{"topic_id": TEXT_ID, "topic_name": "u"}],
    }
