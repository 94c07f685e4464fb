import pytest

from barnabas.pipeline.cluster import EARLIEST, LATEST, Place
from barnabas.pipeline.options import parse_partitions_json, partitions_json, read_options, write_options
from barnabas.ports.errors import ConfigError

BASE = {"kafka.bootstrap.servers": "h:1"}
TOPIC = BASE | {"subscribe": "a"}


def test_defaults_of_a_batch_read() -> None:
    options = read_options(TOPIC)
    assert options.where.bootstrap == "h:1"
    assert options.selection.topics == ("a",)
    assert (options.starting.default, options.ending.default) == (EARLIEST, LATEST)
    assert options.fail_on_data_loss
    assert not options.include_headers


def test_a_stream_starts_at_the_end() -> None:
    assert read_options(TOPIC, streaming=True).starting.default == LATEST


def test_names_are_case_insensitive() -> None:
    options = read_options({"BOOTSTRAP.servers": "h:1", "SUBSCRIBE": "a, b ,a", "minpartitions": "4"})
    assert options.selection.topics == ("a", "b")
    assert options.min_partitions == 4


def test_assign_names_partitions() -> None:
    options = read_options(BASE | {"assign": '{"b": [1], "a": [0, 2]}'})
    assert options.selection.partitions == (Place("b", 1), Place("a", 0), Place("a", 2))


def test_offsets_by_partition() -> None:
    options = read_options(
        TOPIC | {"startingOffsets": '{"a": {"0": 5, "1": -2}}', "endingOffsets": '{"a":{"0":9,"1":-1}}'}
    )
    assert options.starting.offsets == {Place("a", 0): 5, Place("a", 1): EARLIEST}
    assert options.ending.offsets == {Place("a", 0): 9, Place("a", 1): LATEST}


def test_a_timestamp_goes_before_offsets() -> None:
    options = read_options(TOPIC | {"startingTimestamp": "1000", "startingOffsets": "earliest"})
    assert options.starting.timestamp_ms == 1000
    options = read_options(TOPIC | {"endingOffsetsByTimestamp": '{"a": {"0": 7}}'})
    assert options.ending.timestamps_ms == {Place("a", 0): 7}


def test_client_settings_lose_their_prefix() -> None:
    assert read_options(TOPIC | {"kafka.client.id": "me"}).client == {"client.id": "me"}
    assert write_options(BASE | {"kafka.acks": "all", "topic": "t"}).producer == {"acks": "all"}


def test_tuning_of_the_java_client_is_accepted() -> None:
    read_options(TOPIC | {"kafka.group.id": "g", "fetchOffset.numRetries": "3"})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "a"}, "bootstrap.servers"),
        (BASE, "exactly one"),
        (TOPIC | {"assign": "{}"}, "exactly one .* subscribe and assign"),
        (BASE | {"subscribe": " , "}, "at least one topic"),
        (BASE | {"subscribePattern": "("}, "regular expression"),
        (BASE | {"assign": '{"a": 0}'}, "assign must be JSON"),
        (BASE | {"assign": '{"a": [-1]}'}, "assign must be JSON"),
        (BASE | {"assign": "[]"}, "assign must be JSON"),
        (BASE | {"assign": "nonsense"}, "assign must be JSON"),
        (TOPIC | {"startingOffsets": "latest"}, "cannot be 'latest'"),
        (TOPIC | {"endingOffsets": "earliest"}, "cannot be 'earliest'"),
        (TOPIC | {"startingOffsets": '{"a": {"0": -1}}'}, "a-0 cannot be -1"),
        (TOPIC | {"endingOffsets": '{"a": {"0": -2}}'}, "a-0 cannot be -2"),
        (TOPIC | {"startingOffsets": '{"a": {"0": -7}}'}, "a-0 cannot be -7"),
        (TOPIC | {"startingOffsets": '{"a": {"x": 1}}'}, "must be JSON"),
        (TOPIC | {"startingOffsets": '{"a": 1}'}, "must be JSON"),
        (TOPIC | {"startingOffsets": "soon"}, "'earliest', 'latest' or JSON"),
        (TOPIC | {"startingTimestamp": "yesterday"}, "whole number"),
        (TOPIC | {"startingOffsetsByTimestampStrategy": "guess"}, "'error' or 'latest'"),
        (TOPIC | {"minPartitions": "0"}, "at least 1"),
        (TOPIC | {"minPartitions": "many"}, "whole number"),
        (TOPIC | {"failOnDataLoss": "perhaps"}, "'true' or 'false'"),
        (TOPIC | {"startingOffset": "earliest"}, "unknown option 'startingOffset'.*did you mean startingOffsets"),
        (TOPIC | {"sasl.jaas.config": "x"}, "unknown option"),
    ],
)
def test_wrong_options_say_what_is_right(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        read_options(options)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(ConfigError, match="no meaning in a stream"):
        read_options(TOPIC | {"endingOffsets": "latest"}, streaming=True)


def test_partitions_json_both_ways() -> None:
    offsets = {Place("a", 0): 1, Place("a", 10): 2, Place("b.c", 1): -1}
    assert parse_partitions_json(partitions_json(offsets)) == offsets
