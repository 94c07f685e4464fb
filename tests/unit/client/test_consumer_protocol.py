"""Subscriptions and assignments of members, byte for byte as other clients write them."""

import io
from typing import Any

import pytest
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AioSticky
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment as AioAssignment
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata as AioMetadata
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.consumer_protocol_assignment.v3 import data as kio_assignment
from kio.schema.consumer_protocol_subscription.v3 import data as kio_subscription
from kio.serial import entity_writer
from support.kafka_python_groups import ConsumerProtocolAssignment as PythonAssignment
from support.kafka_python_groups import ConsumerProtocolSubscription as PythonSubscription

from barnabas.core.client.group.builtin_assignors import builtin_assignor
from barnabas.core.client.group.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas.ports.types import TopicPartition

OWNED = (TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 1))
FULL = Subscription(topics=("t", "u"), user_data=b"x", owned=OWNED, generation_id=7, rack="r")

names = st.text(max_size=20)
places = st.lists(st.builds(TopicPartition, names, st.integers(-(2**31), 2**31 - 1)), unique=True).map(
    lambda found: tuple(sorted(found))
)
subscriptions = st.builds(
    Subscription,
    topics=st.lists(names).map(tuple),
    user_data=st.none() | st.binary(max_size=50),
    owned=places,
    generation_id=st.integers(-1, 2**31 - 1),
    rack=st.none() | names,
)


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_are_those_of_kafka_python(version: int) -> None:
    theirs = PythonSubscription.TopicPartition
    made = PythonSubscription(
        version=version,
        topics=["t", "u"],
        user_data=b"x",
        owned_partitions=[theirs(topic="t", partitions=[0, 2]), theirs(topic="u", partitions=[1])],
        generation_id=7,
        rack_id="r",
    )
    data = encode_subscription(FULL, version)
    assert data == made.encode()
    decoded = PythonSubscription.decode(data)
    assert (decoded.topics, decoded.user_data) == (["t", "u"], b"x")
    known = Subscription(
        topics=("t", "u"),
        user_data=b"x",
        owned=OWNED if version >= 1 else (),
        generation_id=7 if version >= 2 else -1,
        rack="r" if version >= 3 else None,
    )
    assert decode_subscription(data) == known


def test_subscriptions_are_those_of_the_schema() -> None:
    out = io.BytesIO(b"\x00\x03")
    out.seek(2)
    theirs: Any = kio_subscription.TopicPartition
    entity: Any = kio_subscription.ConsumerProtocolSubscription
    entity_writer(entity)(
        out,
        entity(
            topics=("t", "u"),
            user_data=b"x",
            owned_partitions=(theirs(topic="t", partitions=(0, 2)), theirs(topic="u", partitions=(1,))),
            generation_id=7,
            rack_id="r",
        ),
    )
    assert encode_subscription(FULL) == out.getvalue()


def test_assignments_are_those_of_the_schema_and_of_kafka_python() -> None:
    out = io.BytesIO(b"\x00\x03")
    out.seek(2)
    theirs: Any = kio_assignment.TopicPartition
    entity: Any = kio_assignment.ConsumerProtocolAssignment
    assigned = (theirs(topic="t", partitions=(0, 2)), theirs(topic="u", partitions=(1,)))
    entity_writer(entity)(out, entity(assigned_partitions=assigned, user_data=None))
    data = encode_assignment(Assignment(partitions=OWNED))
    assert data == out.getvalue() == PythonAssignment(3, [("t", [0, 2]), ("u", [1])], None).encode()
    assert decode_assignment(data) == Assignment(partitions=OWNED)
    assert [tuple(tp) for tp in PythonAssignment.decode(data).partitions()] == list(OWNED)


def test_aiokafka_reads_what_it_knows_of() -> None:
    metadata = AioMetadata.decode(encode_subscription(FULL))
    assert (metadata.subscription, metadata.user_data) == (["t", "u"], b"x")
    assert AioMetadata.decode(encode_subscription(Subscription(topics=("t",)))).user_data is None
    assignment = AioAssignment.decode(encode_assignment(Assignment(partitions=OWNED)))
    assert [tuple(tp) for tp in assignment.partitions()] == list(OWNED)
    theirs = AioMetadata(0, ["t"], b"").encode()
    assert decode_subscription(theirs) == Subscription(topics=("t",), user_data=b"")
    assert theirs == encode_subscription(Subscription(topics=("t",), user_data=b""), 0)


def test_librdkafka_is_understood() -> None:
    """Recorded from librdkafka 2.16."""
    first = decode_subscription(bytes.fromhex("0003 00000001 0001 74 00000000 00000000 ffffffff 0000"))
    assert first == Subscription(topics=("t",), user_data=b"", rack="")
    later = decode_subscription(
        bytes.fromhex(
            "0003 00000001 0001 74"
            "00000017 00000001 0001 74 00000002 00000002 00000003 00000002"
            "00000001 0001 74 00000002 00000002 00000003 00000002 0000"
        )
    )
    assert (later.owned, later.generation_id) == ((TopicPartition("t", 2), TopicPartition("t", 3)), 2)
    assigned = bytes.fromhex("0000 00000001 0001 74 00000002 00000000 00000001 00000000")
    partitions = (TopicPartition("t", 0), TopicPartition("t", 1))
    assert decode_assignment(assigned) == Assignment(partitions=partitions, user_data=b"")
    assert encode_assignment(Assignment(partitions=partitions, user_data=b""), 0) == assigned


def test_sticky_user_data_are_javas() -> None:
    """StickyAssignorUserData version 1 without its number, as aiokafka has it too."""
    data = builtin_assignor("sticky").user_data(OWNED, 7)
    assert data == bytes.fromhex("00000002 0001 74 00000002 00000000 00000002 0001 75 00000001 00000001 00000007")
    theirs: Any = AioSticky._metadata(["t"], [TopicPartition(*tp) for tp in OWNED], 7)
    assert theirs.user_data == data
    assert AioSticky.parse_member_metadata(AioMetadata(0, ["t"], data)).generation == 7
    assert builtin_assignor("sticky").user_data((), -1) is None


def test_cooperative_user_data_are_javas() -> None:
    assert builtin_assignor("cooperative-sticky").user_data(OWNED, 7) == bytes.fromhex("00000007")


@given(subscriptions)
def test_subscriptions_come_back(subscription: Subscription) -> None:
    data = encode_subscription(subscription)
    assert decode_subscription(data) == subscription
    assert decode_subscription(b"\x00\x09" + data[2:] + b"what version 9 adds") == subscription


@given(places, st.none() | st.binary(max_size=50))
def test_assignments_come_back(partitions: tuple[TopicPartition, ...], user_data: bytes | None) -> None:
    assignment = Assignment(partitions=partitions, user_data=user_data)
    assert decode_assignment(encode_assignment(assignment)) == assignment


def test_no_bytes_assign_nothing() -> None:
    assert decode_assignment(b"") == Assignment(partitions=())


GARBAGE = """
    00 ffff00000000 0000 000000000001 00000000000100 00007fffffff0001 0000ffffffff 0000000000010001ff00000000
    000000000001ffff00000000 00000000000000000005ab 00010000000000000000ffffffff
"""


@pytest.mark.parametrize("data", ["", *GARBAGE.split()])
def test_garbage_is_no_subscription(data: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_subscription(bytes.fromhex(data))


@given(st.binary(min_size=1, max_size=60))
def test_anything_is_understood_or_refused(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except ValueError:
            continue


def test_names_have_an_end() -> None:
    with pytest.raises(ValueError, match="32768 bytes"):
        encode_subscription(Subscription(topics=("x" * 32768,)))
