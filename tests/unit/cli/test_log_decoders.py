"""Decoders of `barnabas log dump`."""

import json

from barnabas.app.cli.log import decoders
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
