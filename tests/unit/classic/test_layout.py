"""Paths and contents of the registries."""

import pytest

from barnabas.core.classic.registry import layout
from barnabas.core.classic.registry.layout import BrokerPartition, ClassicBroker
from barnabas.ports.errors import ConfigError


def test_paths_follow_kafka_registry_layout() -> None:
    place = BrokerPartition(3, 12)
    assert layout.broker_path(3) == "/brokers/ids/3"
    assert layout.topic_path("t") == "/brokers/topics/t"
    assert layout.topic_broker_path("t", 3) == "/brokers/topics/t/3"
    assert layout.consumer_ids_path("g") == "/consumers/g/ids"
    assert layout.consumer_path("g", "c") == "/consumers/g/ids/c"
    assert layout.owners_path("g", "t") == "/consumers/g/owners/t"
    assert layout.owner_path("g", "t", place) == "/consumers/g/owners/t/3-12"
    assert layout.offsets_path("g") == "/consumers/g/offsets"
    assert layout.offsets_path("g", "t") == "/consumers/g/offsets/t"
    assert layout.offset_path("g", "t", place) == "/consumers/g/offsets/t/3-12"


def test_a_broker_and_back() -> None:
    broker = ClassicBroker(broker_id=7, creator_id="host-1322090000000", host="10.0.0.1", port=9092)
    assert layout.encode_broker(broker) == b"host-1322090000000:10.0.0.1:9092"
    assert layout.decode_broker("7", layout.encode_broker(broker)) == broker


@pytest.mark.parametrize(
    ("name", "data"),
    [
        *(("7", b""), ("7", b"a:b"), ("7", b"a::1"), ("7", b"a:b:"), ("7", b"a:b:c"), ("7", b"a:b:0")),
        *(("7", b"a:b:65536"), ("7", b"\xff:b:1"), ("x", b"a:b:1"), ("-1", b"a:b:1"), ("07", b"a:b:1")),
        *((" 7", b"a:b:1"), ("2147483648", b"a:b:1"), ("\u0667", b"a:b:1")),
    ],
)
def test_malformed_broker_node_is_an_error(name: str, data: bytes) -> None:
    with pytest.raises(ValueError):
        layout.decode_broker(name, data)


def test_numbers_encode_to_decimal_and_decode_with_whitespace() -> None:
    assert layout.encode_number(0) == b"0"
    assert layout.decode_number(b" 12\n", "offset") == 12
    assert layout.decode_number(b"9223372036854775807", "offset") == 2**63 - 1


@pytest.mark.parametrize(
    "data", [b"", b"-1", b"+1", b"1.0", b"1_000", b"0x1", b"9223372036854775808", b"\xff", b"1" * 99]
)
def test_malformed_number_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"is not a valid offset|is not UTF-8"):
        layout.decode_number(data, "offset")


def test_broker_partition_decodes_from_its_text() -> None:
    assert layout.decode_place("0-10") == BrokerPartition(0, 10)
    assert str(BrokerPartition(0, 10)) == "0-10"


@pytest.mark.parametrize(
    "name", ["", "1", "-", "1-", "-1", "1-2-3", "a-b", "01-1", "1-01", "1--1", "1-2147483648", "1 -2"]
)
def test_malformed_partition_name_is_an_error(name: str) -> None:
    with pytest.raises(ValueError):
        layout.decode_place(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/", "a\nb", "a\x00", "\u200b", "\ud800"])
def test_name_unfit_for_a_path_is_named_in_the_error(name: str) -> None:
    with pytest.raises(ConfigError, match="group id"):
        layout.check_name("group id", name)


@pytest.mark.parametrize("name", ["a", "a b", "...", "\u00fcber", 'a"b', "g_host-1-0"])
def test_usable_names_pass_check(name: str) -> None:
    assert layout.check_name("group id", name) == name
