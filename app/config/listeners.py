"""The listeners of a broker, and the addresses that it advertises to clients."""

from collections.abc import Mapping, Sequence

from attrs import evolve, field

from ...ports.errors import ConfigError
from ...ports.values import frozen

KAFKA = "kafka"
CLASSIC = "classic"
PLAINTEXT, SASL_PLAINTEXT = "PLAINTEXT", "SASL_PLAINTEXT"
CLASSIC_SSL = "classic_ssl"
"""The classic protocol over TLS, as the word before `://` or in `listener.security.protocol.map`."""
_ALIASES = {
    "plaintext": KAFKA,
    KAFKA: KAFKA,
    CLASSIC: CLASSIC,
    CLASSIC_SSL: CLASSIC,
    "sasl_plaintext": KAFKA,
    "ssl": KAFKA,
    "sasl_ssl": KAFKA,
}
SECURITY_PROTOCOLS = (PLAINTEXT, "SSL", SASL_PLAINTEXT, "SASL_SSL")
_ANY_ADDRESS = ("0.0.0.0", "::")


@frozen
class ListenAddress:
    """An address that speaks one protocol. An empty host is every interface of the machine; port 0 is any free one."""

    protocol: str
    host: str
    port: int
    name: str = field(default="", eq=False)
    """The name in the configuration, as `listener_name` writes it."""
    security: str = field(default=PLAINTEXT, eq=False, kw_only=True)
    """The security protocol, Kafka's `SecurityProtocol`."""

    @property
    def has_sasl(self) -> bool:
        return self.security.startswith("SASL_")

    @property
    def has_tls(self) -> bool:
        return self.security.endswith("SSL")

    def __str__(self) -> str:
        return f"{self.protocol}://{self.address_text}"

    @property
    def address_text(self) -> str:
        """`host:port`, an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def listener_name(text: str) -> str:
    """Return a listener's name as Kafka writes it; `kafka://` is another word for its `PLAINTEXT://`."""
    name = text.strip().upper()
    return "PLAINTEXT" if name == KAFKA.upper() else name


def parse_listener(text: str, key: str = "listeners", *, protocols: Mapping[str, str] | None = None) -> ListenAddress:
    """`kafka://host:port` (or with Kafka's `PLAINTEXT://`), `classic://host:port`, or with another name if `protocols`
    say what it speaks. Raises `ConfigError`."""
    scheme, separator, rest = text.strip().partition("://")
    word, name = scheme.strip().lower(), listener_name(scheme)
    protocol = word if word in _ALIASES else (protocols or {}).get(name, word)
    if not separator or protocol not in _ALIASES:
        raise ConfigError(f"{key}={text} is not of the form kafka://HOST:PORT or classic://HOST:PORT")
    host, port = parse_address(rest, f"{key}={text}")
    security = "SSL" if protocol == CLASSIC_SSL else protocol.upper()
    if security not in SECURITY_PROTOCOLS:
        security = PLAINTEXT
    return ListenAddress(_ALIASES[protocol], host, port, name, security=security)


def parse_address(text: str, what: str) -> tuple[str, int]:
    """`host:port`, IPv6 in brackets, port 0 to 65535. Raises `ConfigError`, which begins with `what`."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not (port.isascii() and port.isdecimal()) or len(port) > 5 or int(port) > 65_535:
        raise ConfigError(f"{what} has no port from 0 to 65535 at its end")
    if bracketed:
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"{what} has an IPv6 address that is not in brackets: [::1]:9092")
    if bracketed != (":" in host) or any(letter.isspace() or letter in "/@[]?#" for letter in host):
        raise ConfigError(f"{what} has the host {host!r}, which is none")
    return host, int(port)


def parse_listeners(
    texts: Sequence[str], key: str = "listeners", *, protocols: Mapping[str, str] | None = None
) -> tuple[ListenAddress, ...]:
    """Parse the listeners. Raises `ConfigError` for a malformed one, and if two use the same address."""
    listeners = tuple(parse_listener(text, key, protocols=protocols) for text in texts)
    taken = [(listener.host, listener.port) for listener in listeners if listener.port]
    if len(set(taken)) != len(taken):
        raise ConfigError(f"{key} names an address twice: {', '.join(texts)}")
    return listeners


def check_advertised(listeners: Sequence[ListenAddress], advertised: Sequence[ListenAddress]) -> None:
    """Raise `ConfigError` unless each listener has an address that clients can connect to."""
    if advertised and len(advertised) != len(listeners):
        text = f"advertised.listeners has {len(advertised)} entries, listeners {len(listeners)}"
        raise ConfigError(f"{text}; give one for each, in the same order")
    for listener in advertised or listeners:
        if listener.host in _ANY_ADDRESS or (advertised and not listener.host):
            text = f"clients cannot connect to {listener}; set advertised.listeners to what they can reach"
            raise ConfigError(f"{text}, such as kafka://my-host:9092")


def advertised(
    bound: Sequence[ListenAddress], given: Sequence[ListenAddress], hostname: str
) -> tuple[ListenAddress, ...]:
    """Return the advertised listeners: of `bound`, with real ports, or of `given`, from advertised.listeners or empty.

    A given port 0 means the bound one; a listener on every interface is advertised with `hostname`.
    """
    addresses = []
    for index, listener in enumerate(bound):
        wanted = given[index] if given else evolve(listener, host=listener.host or hostname)
        addresses.append(evolve(wanted, port=wanted.port or listener.port))
    return tuple(addresses)
