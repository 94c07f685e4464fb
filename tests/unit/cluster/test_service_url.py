import pytest

from barnabas.core.tree.service_url import Endpoint, ServiceUrl, parse_service_url
from barnabas.ports.errors import ConfigError


def _parse(url: str) -> ServiceUrl:
    return parse_service_url(url, scheme="zookeeper", default_port=2181)


def test_servers_and_prefix() -> None:
    url = _parse("zookeeper://one:2182, two ,[::1]:3,[fe80::2]/kafka/a/")
    assert url.endpoints == (
        Endpoint(host="one", port=2182),
        Endpoint(host="two", port=2181),
        Endpoint(host="::1", port=3),
        Endpoint(host="fe80::2", port=2181),
    )
    assert url.prefix == "/kafka/a"
    assert url.servers == "one:2182,two:2181,[::1]:3,[fe80::2]:2181"


@pytest.mark.parametrize("url", ["zookeeper://h", "zookeeper://h/"])
def test_without_a_prefix(url: str) -> None:
    assert _parse(url) == ServiceUrl(endpoints=(Endpoint(host="h", port=2181),))


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("etcd://h:1", "not of the form zookeeper://host:2181"),
        ("h:2181", "not of the form"),
        ("zookeeper:h:2181", "not of the form"),
        ("zookeeper://", "'' is not a host and port"),
        ("zookeeper://a,,b", "'' is not a host and port"),
        ("zookeeper://h:port", "'h:port' is not a host and port"),
        ("zookeeper://::1:2181", "'::1:2181' is not a host and port"),
        ("zookeeper://user@h", "has a user or password, which would appear in logs"),
        ("zookeeper://h:0", "the port 0 is not between 1 and 65535"),
        ("zookeeper://h:65536", "the port 65536 is not between"),
        ("zookeeper://h/a//b", "no empty part"),
        ("zookeeper://h/a/../b", "no part"),
    ],
)
def test_invalid_service_url_is_named_in_the_error(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace("..", r"\.\.")):
        _parse(url)
