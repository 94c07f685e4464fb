"""Checkpoint files (facts B3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.adapters.storage_memory import MemoryLogDir
from barnabas.core.log.checkpoints import (
    format_epochs,
    format_offsets,
    format_partition_metadata,
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
    read_epochs,
    read_offsets,
)
from barnabas.core.log.names import DELETE_FOLDER_SUFFIX, folder_partition, folder_state, transient_folder_name
from barnabas.ports.types import TopicPartition

GARBAGE = [
    b"",
    b"\xff\xfe",
    b"0\n",
    b"1\n0\n",
    b"0\n2\nt 0 5\n",
    b"0\n1\nt 0\n",
    b"0\n1\nt 0 -5\n",
    b"0\n1\nt 0 x\n",
    b"0\n1\n 0 5\n",
    b"0\n1\nt 0 99999999999999999999\n",
    b"0\nmany\n",
    bytes(100),
]


def test_offsets_as_kafka_writes_them() -> None:
    offsets = {TopicPartition("a", 0): 5, TopicPartition("b-c", 12): 2**62}
    assert format_offsets(offsets) == b"0\n2\na 0 5\nb-c 12 4611686018427387904\n"
    assert parse_offsets(format_offsets(offsets)) == offsets
    assert format_offsets({}) == b"0\n0\n"
    assert parse_offsets(b"0\n0\n") == {}


def test_names_of_classic_topics_may_have_spaces_and_letters_of_any_script() -> None:
    offsets = {TopicPartition(name, 3): 7 for name in ("page views", " ", "Zürich\u2028", "a 1 2")}
    assert parse_offsets(format_offsets(offsets)) == offsets


@pytest.mark.parametrize("content", GARBAGE)
def test_garbage_counts_as_missing_with_a_report(content: bytes) -> None:
    with pytest.raises(ValueError):  # several texts
        parse_offsets(content)
    root = MemoryLogDir().root
    root.write_small("recovery-point-offset-checkpoint", content)
    root.write_small("leader-epoch-checkpoint", content)
    reports: list[str] = []
    assert read_offsets(root, "recovery-point-offset-checkpoint", reports.append) == {}
    assert read_epochs(root, reports.append) == []
    assert len(reports) == (2 if content else 1), "Kafka leaves checkpoints empty before it has anything to note"


def test_missing_ones_are_silent() -> None:
    root = MemoryLogDir().root
    reports: list[str] = []
    assert read_offsets(root, "x", reports.append) == {}
    assert read_epochs(root, reports.append) == []
    assert not reports


@given(st.binary(max_size=60))
def test_any_bytes_are_offsets_or_a_value_error(content: bytes) -> None:
    try:
        parse_offsets(content)
        parse_epochs(content)
    except ValueError:
        return


def test_epoch_checkpoint_round_trips_and_rejects_garbage() -> None:
    assert format_epochs([(0, 0), (3, 17)]) == b"0\n2\n0 0\n3 17\n"
    assert parse_epochs(b"0\n2\n0 0\n3 17\n") == [(0, 0), (3, 17)]
    for bad in (b"0\n2\n3 0\n3 17\n", b"0\n2\n3 5\n4 5\n", b"0\n1\n3 5 6\n"):
        with pytest.raises(ValueError):
            parse_epochs(bad)


def test_partition_metadata_round_trips_and_rejects_garbage() -> None:
    topic_id = bytes(range(240, 256))
    content = format_partition_metadata(topic_id)
    assert content == b"version: 0\ntopic_id: 8PHy8_T19vf4-fr7_P3-_w\n"
    assert parse_partition_metadata(content) == topic_id
    for bad in (b"", b"version: 1\ntopic_id: 8PHy8_T19vf4-fr7_P3-_w\n", b"version: 0\ntopic_id: short\n"):
        with pytest.raises(ValueError):
            parse_partition_metadata(bad)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("topic-0", TopicPartition("topic", 0)),
        ("a-b-c-12", TopicPartition("a-b-c", 12)),
        ("x.-3", TopicPartition("x.", 3)),
        ("topic", None),
        ("-0", None),
        ("topic-", None),
        ("topic-01", None),
        ("topic-x", None),
        ("topic--1", TopicPartition("topic-", 1)),
        ("..-1", None),
        ("to pic-1", None),
        ("t-0.0123456789abcdef0123456789abcdef-delete", None),
    ],
)
def test_folder_names_are_parsed_to_partitions(name: str, expected: TopicPartition | None) -> None:
    assert folder_partition(name) == expected


def test_names_of_folders_on_their_way() -> None:
    unique = "0123456789abcdef" * 2
    assert transient_folder_name(TopicPartition("t", 7), unique, DELETE_FOLDER_SUFFIX) == f"t-7.{unique}-delete"
    longest = transient_folder_name(TopicPartition("x" * 249, 7), unique, DELETE_FOLDER_SUFFIX)
    assert len(longest) == 255
    for name, state in (
        (longest, "delete"),
        (f"t-0.{unique}-future", "future"),
        (f"t-0.{unique}-stray", "stray"),
        ("t-0", None),
    ):
        assert folder_state(name) == state
