import pytest

from barnabas.pipeline.source.options import parse_partitions_json, partitions_json, read_options, write_options
from barnabas.pipeline.topics.connect import ClientCluster
from barnabas.pipeline.topics.model import EARLIEST, LATEST, ClusterPartition
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
    assert options.selection.partitions == (
        ClusterPartition("b", 1),
        ClusterPartition("a", 0),
        ClusterPartition("a", 2),
    )


def test_offsets_by_partition() -> None:
    options = read_options(
        TOPIC | {"startingOffsets": '{"a": {"0": 5, "1": -2}}', "endingOffsets": '{"a":{"0":9,"1":-1}}'}
    )
    assert options.starting.offsets == {ClusterPartition("a", 0): 5, ClusterPartition("a", 1): EARLIEST}
    assert options.ending.offsets == {ClusterPartition("a", 0): 9, ClusterPartition("a", 1): LATEST}


def test_a_timestamp_goes_before_offsets() -> None:
    options = read_options(TOPIC | {"startingTimestamp": "1000", "startingOffsets": "earliest"})
    assert options.starting.timestamp_ms == 1000
    options = read_options(TOPIC | {"endingOffsetsByTimestamp": '{"a": {"0": 7}}'})
    assert options.ending.timestamps_ms == {ClusterPartition("a", 0): 7}


def test_client_settings_lose_their_prefix() -> None:
    assert read_options(TOPIC | {"kafka.client.id": "me"}).client == {"client.id": "me"}
    assert write_options(BASE | {"kafka.acks": "all", "topic": "t"}).producer == {"acks": "all"}


def test_tuning_of_the_java_client_is_accepted_and_left_out() -> None:
    harmless = {
        "kafka.group.id": "g",
        "fetchOffset.numRetries": "3",
        "kafka.security.protocol": "plaintext",
        "kafka.ssl.truststore.location": "/none.jks",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.session.timeout.ms": "10",
        "kafka.max.poll.records": "100000",
        "kafka.partition.assignment.strategy": "org.example.Own",
        "kafka.enable.auto.commit": "false",
        "kafka.metrics.num.samples": "2",
        "kafka.client.dns.lookup": "use_all_dns_ips",
        "kafka.receive.buffer.bytes": "65536",
    }
    options = read_options(TOPIC | harmless | {"kafka.fetch.max.bytes": "1000", "kafka.Check.CRCs": "false"})
    assert options.client == {"fetch.max.bytes": "1000", "check.crcs": "false"}
    ClientCluster("h:1", options.client).close()
    harmless = {
        "kafka.security.protocol": "PLAINTEXT",
        "kafka.compression.zstd.level": "9",
        "kafka.partitioner.ignore.keys": "false",
        "kafka.connections.max.idle.ms": "1",
    }
    assert write_options(BASE | harmless | {"kafka.linger.ms": "7"}).producer == {"linger.ms": "7"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kafka.security.protocol": "SASL_SSL"}, "^security.protocol=SASL_SSL needs sasl.mechanism"),
        ({"kafka.sasl.jaas.config": "x"}, "^kafka.sasl.jaas.config needs kafka.security.protocol, which is not set"),
        ({"kafka.auto.offset.reset": "earliest"}, "^kafka.auto.offset.reset cannot be set: use startingOffsets"),
        ({"kafka.key.deserializer": "a.B"}, "^kafka.key.deserializer cannot be set: keys and values are bytes"),
        ({"kafka.enable.auto.commit": "true"}, "^kafka.enable.auto.commit cannot be set.*commitOffsetsToGroup"),
        ({"kafka.interceptor.classes": "a.B"}, "^kafka.interceptor.classes cannot be set"),
        (
            {"kafka.fetch.min.byte": "1"},
            "^unknown setting 'kafka.fetch.min.byte'; did you mean 'kafka.fetch.min.bytes'",
        ),
        ({"kafka.fetch.min.bytes": "x"}, "^kafka.fetch.min.bytes = 'x'"),
        ({"kafka.request.timeout.ms": "0"}, "^kafka.request.timeout.ms must be >= 1"),
        ({"kafka.isolation.level": "x"}, "^kafka.isolation.level = 'x': expected read_uncommitted"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, r"\(5\) must not be more than maxOffsets"),
        ({"maxTriggerDelay": "soon"}, "^maxTriggerDelay must be a time like"),
        ({"maxTriggerDelay": "5 weeks"}, "^maxTriggerDelay must be a time like"),
    ],
)
def test_unsupported_kafka_options_raise_config_error_naming_option(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        read_options(TOPIC | options, streaming=True)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kafka.value.serializer": "a.B"}, "^kafka.value.serializer cannot be set: keys and values are bytes"),
        ({"kafka.transactional.id": "t"}, "^kafka.transactional.id cannot be set: say txnAppId"),
        ({"kafka.partitioner.ignore.keys": "true"}, "^kafka.partitioner.ignore.keys cannot be set: set a column"),
        ({"kafka.acks": "2"}, "^kafka.acks must be 0, 1"),
        ({"includeHeaders": "perhaps"}, "^includeHeaders must be 'true' or 'false'"),
    ],
)
def test_settings_of_a_write(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        write_options(BASE | options)


@pytest.mark.parametrize(
    ("text", "seconds"), [("250ms", 0.25), ("1500", 1.5), ("30s", 30), ("15m", 900), ("2 MIN", 120), ("1h", 3600)]
)
def test_times_are_written_as_in_spark(text: str, seconds: float) -> None:
    assert read_options(TOPIC | {"maxTriggerDelay": text}).max_trigger_delay_s == seconds
    assert read_options(TOPIC).max_trigger_delay_s == 900


def test_the_sink_takes_includeheaders() -> None:
    assert write_options(BASE | {"includeHeaders": "true", "topic": " t "}).topic == "t"


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
    offsets = {ClusterPartition("a", 0): 1, ClusterPartition("a", 10): 2, ClusterPartition("b.c", 1): -1}
    assert parse_partitions_json(partitions_json(offsets)) == offsets


def test_a_writer_of_batches_has_a_name() -> None:
    options = write_options({"bootstrap": "h:1", "topic": "t", "txnAppId": "job", "txnVersion": "7"})
    assert (options.txn_app_id, options.txn_version) == ("job", 7)
    assert write_options({"bootstrap": "h:1", "topic": "t"}).txn_app_id is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"txnVersion": "7"}, "name it with txnAppId"),
        ({"txnAppId": " "}, "must name the writer"),
        ({"txnAppId": "job", "txnVersion": "-1"}, "whole number"),
    ],
)
def test_a_writer_of_batches_is_checked(given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        write_options({"bootstrap": "h:1", "topic": "t", **given})
