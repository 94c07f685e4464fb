import pytest

from barnabas.app.config import BrokerConfig, ListenAddress, advertised, parse_listener
from barnabas.ports.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "listener", "written"),
    [
        ("kafka://127.0.0.1:9092", ListenAddress("kafka", "127.0.0.1", 9092), "kafka://127.0.0.1:9092"),
        (" kafka://host.example:0 ", ListenAddress("kafka", "host.example", 0), "kafka://host.example:0"),
        ("PLAINTEXT://h:1", ListenAddress("kafka", "h", 1), "kafka://h:1"),
        ("kafka://[::1]:9092", ListenAddress("kafka", "::1", 9092), "kafka://[::1]:9092"),
        ("kafka://:9092", ListenAddress("kafka", "", 9092), "kafka://:9092"),
        ("classic://h:6667", ListenAddress("classic", "h", 6667), "classic://h:6667"),
    ],
)
def test_listener_text_parses_and_formats_back(text: str, listener: ListenAddress, written: str) -> None:
    assert parse_listener(text) == listener
    assert str(listener) == written
    assert parse_listener(written) == listener


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("h:1", "not of the form kafka://HOST:PORT"),
        ("", "not of the form kafka://HOST:PORT"),
        ("http://h:1", "not of the form kafka://HOST:PORT"),
        ("kafka:h:1", "not of the form kafka://HOST:PORT"),
        ("kafka://h", "no port"),
        ("kafka://h:", "no port"),
        ("kafka://h:x", "no port"),
        ("kafka://h:-1", "no port"),
        ("kafka://h:65536", "no port"),
        ("kafka://h:999999999999", "no port"),
        ("kafka://h:٣", "no port"),
        ("kafka://h:1/path", "no port"),
        ("kafka://::1:9092", "not in brackets"),
        ("kafka://[h]:1", "is none"),
        ("kafka://[]:1", "is none"),
        ("kafka://a b:1", "is none"),
        ("kafka://u@h:1", "is none"),
    ],
)
def test_malformed_listener_is_an_error(text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault) as error:
        parse_listener(text)
    assert f"listeners={text}" in str(error.value)


def test_several_listeners_need_distinct_addresses() -> None:
    config = BrokerConfig(listeners=("kafka://127.0.0.1:0", "kafka://127.0.0.1:0", "kafka://[::1]:1"))
    assert [listener.port for listener in config.listener_list] == [0, 0, 1]
    with pytest.raises(ConfigError, match="names an address twice"):
        BrokerConfig(listeners=("kafka://h:1", "PLAINTEXT://h:1"))
    with pytest.raises(ConfigError, match="listeners is empty"):
        BrokerConfig(listeners=())


def test_advertised_addresses_default_to_bound_ports_and_host_name() -> None:
    bound = [ListenAddress("kafka", "127.0.0.1", 40_001), ListenAddress("kafka", "", 40_002)]
    assert [str(observed) for observed in advertised(bound, (), "box")] == [
        "kafka://127.0.0.1:40001",
        "kafka://box:40002",
    ]
    given = BrokerConfig(
        listeners=("kafka://127.0.0.1:0", "kafka://0.0.0.0:0"),
        advertised_listeners=("kafka://out.example:19092", "PLAINTEXT://in.example:0"),
    ).advertised_listener_list
    observed = ["kafka://out.example:19092", "kafka://in.example:40002"]
    assert [str(listener) for listener in advertised(bound, given, "box")] == observed


@pytest.mark.parametrize(
    ("listeners", "observed"),
    [
        (("kafka://0.0.0.0:9092",), ()),
        (("kafka://[::]:9092",), ()),
        (("kafka://h:9092",), ("kafka://0.0.0.0:9092",)),
        (("kafka://h:9092",), ("kafka://:9092",)),
        (("kafka://h:9092",), ("kafka://a:1", "kafka://b:1")),
    ],
)
def test_unusable_advertised_listeners_raise_config_error(
    listeners: tuple[str, ...], observed: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match=r"advertised\.listeners"):
        BrokerConfig(listeners=listeners, advertised_listeners=observed)
