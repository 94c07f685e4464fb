"""URLs of coordination services: `scheme://host:port,host:port/prefix`."""

import re

from ...ports.errors import ConfigError
from ...ports.values import frozen
from .tree import check_path

_USER_INFO = re.compile(r"(?<=://)[^/]*@")
_HOST_AND_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\[\]:/@\s]+)(?::(?P<port>[0-9]{1,5}))?")


@frozen(kw_only=True)
class Endpoint:
    """One server. `str()` gives `host:port`, an IPv6 address in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@frozen(kw_only=True)
class ServiceUrl:
    """The servers, and the absolute path of the root of the tree, or ""."""

    endpoints: tuple[Endpoint, ...]
    prefix: str = ""

    @property
    def servers(self) -> str:
        """The servers as `host:port,host:port`."""
        return ",".join(map(str, self.endpoints))


def redact_url(url: str) -> str:
    """Return the URL without the user and the password in it, for logs and errors."""
    return _USER_INFO.sub("[hidden]@", url)


def parse_service_url(url: str, *, scheme: str, default_port: int) -> ServiceUrl:
    """Parse the URL. Raises `ConfigError` that names the invalid part."""
    example = f"{scheme}://host:{default_port},host2:{default_port}/path"
    if (shown := redact_url(url)) != url:
        text = f"{shown!r} has a user or password, which would appear in logs"
        raise ConfigError(f"{text}; set etcd.user and etcd.password, or zookeeper.sasl.jaas.config")
    found, separator, rest = url.partition("://")
    if not separator or found != scheme:
        raise ConfigError(f"{url!r} is not of the form {example}")
    servers, slash, prefix = rest.partition("/")
    path = (slash + prefix).rstrip("/")
    if path:
        try:
            check_path(path)
        except ValueError as error:
            raise ConfigError(f"{url!r}: {error}") from error
    endpoints = tuple(_parse_endpoint(url, server.strip(), default_port, example) for server in servers.split(","))
    return ServiceUrl(endpoints=endpoints, prefix=path)


def _parse_endpoint(url: str, server: str, default_port: int, example: str) -> Endpoint:
    match = _HOST_AND_PORT.fullmatch(server)
    if match is None:
        raise ConfigError(f"{url!r}: {server!r} is not a host and port; use {example}")
    port = int(match["port"] or default_port)
    if not 0 < port < 65536:
        raise ConfigError(f"{url!r}: the port {port} is not between 1 and 65535")
    return Endpoint(host=match["host"].strip("[]"), port=port)
