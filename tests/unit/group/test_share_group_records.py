"""Records of share groups in `__consumer_offsets`: Kafka's bytes, both ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    decode_share_key,
    decode_share_value,
    encode_share_key,
    encode_share_value,
    share_tombstones,
)
from barnabas.core.coordinator.record_fields import UnknownVersion
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

ID = bytes(range(16))
HEX_ID = ID.hex()

VALUES: list[tuple[ShareRecord, StoredShareValue, str]] = [
    (
        ShareRecord.MEMBER,
        StoredShareMember(rack_id=None, client_id="c", client_host="/h", subscribed_topic_names=("t", "é")),
        "0000 00 02 63 03 2f68 03 02 74 03 c3a9 00",
    ),
    (ShareRecord.GROUP, StoredShareGroup(7, -2), "0000 00000007 fffffffffffffffe 00"),
    (ShareRecord.TARGET_ASSIGNMENT, StoredTargetAssignment(7), "0000 00000007 00"),
    (ShareRecord.TARGET_ASSIGNMENT, StoredTargetAssignment(7, 9), "0000 00000007 01 00 08 0000000000000009"),
    (
        ShareRecord.TARGET_ASSIGNMENT_OF_MEMBER,
        {ID: (0, 3)},
        f"0000 02 {HEX_ID} 03 00000000 00000003 00 00",
    ),
    (
        ShareRecord.CURRENT_ASSIGNMENT,
        StoredCurrentAssignment(7, 6, {ID: (1,)}),
        f"0000 00000007 00000006 00 02 {HEX_ID} 02 00000001 00 00",
    ),
    (
        ShareRecord.STATE_PARTITIONS,
        StoredStatePartitions(
            initializing={ID: StoredTopicPartitions("t", (1,))},
            initialized={ID: StoredTopicPartitions("t", (0,))},
            deleting={ID: "u"},
        ),
        f"0000 02 {HEX_ID} 02 74 02 00000001 00 02 {HEX_ID} 02 74 02 00000000 00 02 {HEX_ID} 02 75 00 00",
    ),
]


def test_keys_match_kafka_encoding() -> None:
    for kind in ShareRecord:
        has_member = kind in (
            ShareRecord.MEMBER,
            ShareRecord.TARGET_ASSIGNMENT_OF_MEMBER,
            ShareRecord.CURRENT_ASSIGNMENT,
        )
        key = ShareGroupKey(kind, "g", "m" if has_member else "")
        data = bytes.fromhex(f"{int(kind):04x} 0001 67" + (" 0001 6d" if has_member else ""))
        assert encode_share_key(key) == data
        assert decode_share_key(data) == key


@pytest.mark.parametrize(("kind", "value", "data"), VALUES)
def test_values_match_kafka_encoding(kind: ShareRecord, value: StoredShareValue, data: str) -> None:
    assert encode_share_value(value).hex() == bytes.fromhex(data).hex()
    assert decode_share_value(kind, bytes.fromhex(data)) == value


def test_unknown_types_and_versions_raise_unknown_version() -> None:
    with pytest.raises(UnknownVersion):
        decode_share_key(bytes.fromhex("0009 0001 67"))
    for kind in ShareRecord:
        with pytest.raises(UnknownVersion):
            decode_share_value(kind, b"\0\1\0")


@given(st.sampled_from(VALUES), st.integers(0, 60))
def test_a_cut_value_is_corrupt(case: tuple[ShareRecord, StoredShareValue, str], cut: int) -> None:
    kind, _, data = case
    whole = bytes.fromhex(data)
    with pytest.raises(ApiError) as caught:
        decode_share_value(kind, whole[: min(cut, len(whole) - 1)])
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@given(st.sampled_from(ShareRecord), st.binary(max_size=60))
def test_nonsense_is_corrupt_or_unknown(kind: ShareRecord, data: bytes) -> None:
    for decode in (decode_share_key, lambda value: decode_share_value(kind, value)):
        try:
            decode(data)
        except ApiError as error:
            assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_VERSION)


def test_a_tag_of_another_size_is_corrupt() -> None:
    with pytest.raises(ApiError, match="tagged field"):
        decode_share_value(ShareRecord.TARGET_ASSIGNMENT, bytes.fromhex("0000 00000007 01 00 02 0009"))


def test_tombstones_of_a_group_end_with_the_group() -> None:
    keys = [decode_share_key(key) for key, value in share_tombstones("g", ["n", "m"]) if value is None]
    kinds = [int(key.kind) for key in keys]
    assert kinds == [14, 14, 13, 13, 12, 10, 10, 15, 11]
    assert [key.member_id for key in keys[:2]] == ["m", "n"]
