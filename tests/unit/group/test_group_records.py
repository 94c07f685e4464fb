"""Bytes of `__consumer_offsets`, written by hand from the field tables (facts E3)."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.coordinator.group.loading import Loading
from barnabas.core.coordinator.group.records import (
    GroupKey,
    OffsetKey,
    StoredGroup,
    StoredMember,
    StoredOffset,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from barnabas.core.coordinator.record_fields import UnknownVersion
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.types import TopicPartition

ID = bytes(range(16))
GROUP = StoredGroup(
    protocol_type="consumer",
    generation=7,
    protocol="range",
    leader="m-1",
    state_timestamp_ms=0x0102030405,
    members=(
        StoredMember(
            member_id="m-1",
            group_instance_id="i",
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=0x60,
            session_timeout_ms=0x30,
            subscription=b"\xaa\xbb",
            assignment=b"\xcc",
        ),
    ),
)


def _head(version: int) -> str:
    return f"{version:04x} 0008 636f6e73756d6572 00000007 0005 72616e6765 0003 6d2d31"


MEMBER_TAIL = "00000030 00000002 aabb 00000001 cc"
GROUP_BYTES = {
    0: _head(0) + "00000001 0003 6d2d31 0001 63 0002 2f68" + MEMBER_TAIL,
    1: _head(1) + "00000001 0003 6d2d31 0001 63 0002 2f68 00000060" + MEMBER_TAIL,
    2: _head(2) + "0000000102030405 00000001 0003 6d2d31 0001 63 0002 2f68 00000060" + MEMBER_TAIL,
    3: _head(3) + "0000000102030405 00000001 0003 6d2d31 0001 69 0001 63 0002 2f68 00000060" + MEMBER_TAIL,
    4: "0004 09 636f6e73756d6572 00000007 06 72616e6765 04 6d2d31 0000000102030405 02 04 6d2d31 02 69 02 63 03 2f68"
    "00000060 00000030 03 aabb 02 cc 00 01 07 02 ffff",
}


def test_record_keys_match_kafka_encoding() -> None:
    offset_key = bytes.fromhex("0001 0001 67 0002 c3a9 00000005")
    assert encode_offset_key("g", "é", 5) == offset_key
    assert decode_key(offset_key) == OffsetKey("g", TopicPartition("é", 5))
    assert decode_key(b"\0\0" + offset_key[2:]) == OffsetKey("g", TopicPartition("é", 5))
    assert encode_group_key("g") == bytes.fromhex("0002 0001 67")
    assert decode_key(bytes.fromhex("0002 0001 67")) == GroupKey("g")


def test_the_value_of_an_offset() -> None:
    plain = StoredOffset(258, 9, "m", 1000)
    assert encode_offset(plain) == bytes.fromhex("0003 0000000000000102 00000009 0001 6d 00000000000003e8")
    assert decode_offset(encode_offset(plain)) == plain
    expiring = StoredOffset(258, -1, "", 1000, 2000)
    assert encode_offset(expiring) == bytes.fromhex("0001 0000000000000102 0000 00000000000003e8 00000000000007d0")
    assert decode_offset(encode_offset(expiring)) == expiring


@pytest.mark.parametrize("version", [0, 2])
def test_older_values_of_an_offset(version: int) -> None:
    value = pack(">hqh", version, 258, 1) + b"m" + pack(">q", 1000)
    assert decode_offset(value) == StoredOffset(258, -1, "m", 1000)


def test_the_value_of_an_offset_with_a_topic_id() -> None:
    value = bytes.fromhex("0004 0000000000000102 00000009 02 6d 00000000000003e8 01 00 10") + ID
    stored = StoredOffset(258, 9, "m", 1000, topic_id=ID)
    assert encode_offset(stored) == value
    assert decode_offset(value) == stored


def test_the_value_of_an_offset_with_a_topic_id_and_an_expiry() -> None:
    stored = StoredOffset(258, 9, "", 1000, 2000, ID)
    tags = bytes.fromhex("02 00 10") + ID + bytes.fromhex("904e 08 00000000000007d0")
    assert encode_offset(stored) == bytes.fromhex("0004 0000000000000102 00000009 01 00000000000003e8") + tags
    assert decode_offset(encode_offset(stored)) == stored


def test_an_offset_of_version_4_without_tags_names_no_topic() -> None:
    value = bytes.fromhex("0004 0000000000000102 00000009 02 6d 00000000000003e8 00")
    assert decode_offset(value) == StoredOffset(258, 9, "m", 1000)
    unknown = bytes.fromhex("0004 0000000000000102 00000009 02 6d 00000000000003e8 01 07 02 ffff")
    assert decode_offset(unknown) == StoredOffset(258, 9, "m", 1000)


def test_a_topic_id_of_another_size_is_corrupt() -> None:
    with pytest.raises(ApiError) as caught:
        decode_offset(bytes.fromhex("0004 0000000000000102 00000009 02 6d 00000000000003e8 01 00 02 ffff"))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_the_value_of_a_group() -> None:
    assert encode_group(GROUP) == bytes.fromhex(GROUP_BYTES[3])
    empty = StoredGroup(protocol_type="consumer", generation=8)
    assert encode_group(empty) == bytes.fromhex(
        "0003 0008 636f6e73756d6572 00000008 ffff ffff ffffffffffffffff 00000000"
    )
    assert decode_group(encode_group(empty)) == empty


@pytest.mark.parametrize("version", GROUP_BYTES)
def test_every_version_of_a_group(version: int) -> None:
    group = decode_group(bytes.fromhex(GROUP_BYTES[version]))
    (member,) = group.members
    assert (group.protocol_type, group.generation, group.protocol, group.leader) == ("consumer", 7, "range", "m-1")
    assert group.state_timestamp_ms == (GROUP.state_timestamp_ms if version >= 2 else -1)
    assert member.group_instance_id == ("i" if version >= 3 else None)
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (0x30, 0x60 if version else 0x30)
    assert (member.subscription, member.assignment) == (b"\xaa\xbb", b"\xcc")


def test_unknown_record_versions_raise_unknown_version() -> None:
    for decode, data in ((decode_key, "0003 0001 67"), (decode_offset, "0005 00"), (decode_group, "0005 00")):
        with pytest.raises(UnknownVersion, match=r"of version [35]"):
            decode(bytes.fromhex(data))


@given(st.sampled_from([4, 3, 2, 1, 0]), st.integers(0, 80))
def test_a_cut_value_is_corrupt(version: int, cut: int) -> None:
    whole = bytes.fromhex(GROUP_BYTES[version].removesuffix("01 07 02 ffff"))  # the tags at the end are ignored
    with pytest.raises(ApiError) as caught:
        decode_group(whole[: min(cut, len(whole) - 1)])
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@given(st.binary(max_size=60))
def test_nonsense_is_corrupt_or_unknown(data: bytes) -> None:
    for decode in (decode_key, decode_offset, decode_group):
        try:
            decode(data)
        except ApiError as error:
            assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_VERSION)


_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
_ints = st.integers(-(2**31), 2**31 - 1)
_members = st.builds(
    StoredMember,
    member_id=_text,
    group_instance_id=st.none() | _text,
    client_id=_text,
    client_host=_text,
    rebalance_timeout_ms=_ints,
    session_timeout_ms=_ints,
    subscription=st.binary(max_size=10),
    assignment=st.binary(max_size=10),
)


@given(
    st.builds(
        StoredOffset,
        offset=st.integers(0, 2**63 - 1),
        leader_epoch=_ints,
        metadata=st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
        commit_timestamp_ms=st.integers(-1, 2**60),
        expire_timestamp_ms=st.integers(-1, 2**60),
        topic_id=st.binary(min_size=16, max_size=16).filter(any),
    )
)
def test_an_offset_comes_back_as_it_went(stored: StoredOffset) -> None:
    assert decode_offset(encode_offset(stored)) == stored
    loading = Loading(0)
    loading.add(encode_offset_key("g", "t", 3), encode_offset(stored))
    assert loading.groups["g"].offsets == {TopicPartition("t", 3): stored}
    assert loading.topic_ids == {"t": {stored.topic_id}}


@given(
    st.builds(
        StoredGroup,
        protocol_type=_text,
        generation=_ints,
        protocol=st.none() | _text,
        leader=st.none() | _text,
        state_timestamp_ms=st.integers(-1, 2**60),
        members=st.lists(_members, max_size=3).map(tuple),
    )
)
def test_a_group_comes_back_as_it_went(group: StoredGroup) -> None:
    assert decode_group(encode_group(group)) == group


def test_a_text_that_does_not_fit_is_refused() -> None:
    assert len(encode_group_key("x" * 32767)) == 32771
    with pytest.raises(ApiError) as caught:
        encode_group_key("é" * 16384)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
