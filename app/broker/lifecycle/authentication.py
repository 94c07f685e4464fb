"""The SASL of a broker's listeners: from their configuration, the users in the tree and the plug-ins."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping

from ....core.cluster.change_queue import complete
from ....core.cluster.layout import EntityKind
from ....core.cluster.registry import ClusterRegistry
from ....core.security.jaas import JaasEntry, parse_one_login_module
from ....core.security.sasl.client import SaslFactory, new_nonce, password_factory
from ....core.security.sasl.exchange import ServerExchange
from ....core.security.sasl.gssapi import GSSAPI
from ....core.security.sasl.oauthbearer import OAUTHBEARER, OauthbearerServerExchange
from ....core.security.sasl.plain import PLAIN, PlainServerExchange, PlainUsers
from ....core.security.sasl.scram import (
    HASHES,
    ScramCredential,
    ScramCredentials,
    ScramServerExchange,
    TokenCredential,
    credential_of,
    salted_password,
)
from ....core.security.sasl.server_authenticator import SaslListener, SaslMechanism
from ....core.security.scram_users import UserChange, UserNode, parse_bootstrap_users
from ....core.security.ssl_principal_mapper import SslPrincipalMapper
from ....plugins.host import PluginHost
from ....ports.broker_api.envelope import ANONYMOUS, Principal
from ....ports.entropy import Entropy
from ....ports.errors import ConfigError
from ....ports.transport import Connection
from ....ports.values import Secret, frozen
from ...config import BrokerConfig, ListenAddress
from ..state.dependencies import Outside

_USER_PREFIX = "user_"
_SALT_BYTES = 24
_KEY_BYTES = 32
_PRETENDED = "scram-unknown-users"
"""The entity of the key that makes the salts of unknown users."""


@frozen(kw_only=True)
class Credentials:
    """The credentials that the broker's image has.

    scram: that of a user for a mechanism. token: that of a delegation token for a mechanism.
    """

    scram: Callable[[str, str], ScramCredential | None]
    token: Callable[[str, str], TokenCredential | None]


class Authentication:
    """Makes the SASL settings of listeners."""

    def __init__(self, config: BrokerConfig, plugins: PluginHost, outside: Outside, pretended: Secret[bytes]) -> None:
        """Create it. `pretended` is the key of the salts of unknown users."""
        self._config = config
        self._plugins = plugins
        self._entropy = outside.entropy
        self._token_validator = outside.token_validator
        self._kerberos = outside.kerberos
        self._pretended = pretended

    def listener(self, listener: ListenAddress, credentials: Credentials) -> SaslListener | None:
        """Return the SASL of a listener; None: it has none. Raises `ConfigError`."""
        if not listener.has_sasl:
            return None
        config, name = self._config, listener.name
        enabled = config.for_listener(name, "sasl.enabled.mechanisms")
        assert isinstance(enabled, tuple)
        if not enabled:
            raise ConfigError(f"sasl.enabled.mechanisms is empty, and listener {name} speaks {listener.security}")
        builder = config.for_listener(name, "principal.builder.class")
        return SaslListener(
            mechanisms={each.upper(): self._mechanism(name, each.upper(), credentials) for each in enabled},
            failed_delay_ms=config.connection_failed_authentication_delay_ms,
            max_receive_bytes=config.sasl_server_max_receive_size,
            timeout_ms=config.connection_authentication_timeout_ms,
            build_principal=None if builder is None else self._plugins.principal_builder(str(builder)).build,
        )

    def certificate_principals(self, listener: ListenAddress) -> Callable[[Connection], Principal] | None:
        """Return what names the users of a listener by their certificates (ssl.principal.mapping.rules); None: its
        protocol is not SSL. Raises `ConfigError`."""
        rules = self._config.for_listener(listener.name, "ssl.principal.mapping.rules")
        if listener.security != "SSL" or self._config.for_listener(listener.name, "ssl.client.auth") == "none":
            return None
        mapper = SslPrincipalMapper(str(rules))

        def principal_of(connection: Connection) -> Principal:
            subject = connection.peer_subject
            return ANONYMOUS if subject is None else Principal("User", mapper.name_of(subject))

        return principal_of

    def _mechanism(self, listener: str, mechanism: str, credentials: Credentials) -> SaslMechanism:
        max_reauth_ms = self._config.for_listener(listener, "connections.max.reauth.ms", mechanism)
        assert isinstance(max_reauth_ms, int)
        return SaslMechanism(
            make_exchange=self._exchanges(listener, mechanism, credentials), max_reauth_ms=max_reauth_ms
        )

    def _exchanges(self, listener: str, mechanism: str, credentials: Credentials) -> Callable[[], ServerExchange]:
        if mechanism == PLAIN:
            return self._plain(listener)
        if mechanism in HASHES:
            return self._scram(mechanism, credentials)
        if mechanism == OAUTHBEARER and self._token_validator is not None:
            validator = self._token_validator(self._config, listener, self._plugins)
            return lambda: OauthbearerServerExchange(validator)
        if mechanism == GSSAPI and self._kerberos is not None:
            return self._kerberos(self._config, listener)
        known = ", ".join([PLAIN, *HASHES, OAUTHBEARER, GSSAPI])
        raise ConfigError(
            f"sasl.enabled.mechanisms: {mechanism} is not supported; listener {listener} may have {known}"
        )

    def _plain(self, listener: str) -> Callable[[], ServerExchange]:
        handler = self._config.for_listener(listener, "sasl.server.callback.handler.class", PLAIN)
        authenticator = None if handler is None else self._plugins.authenticator(str(handler))
        entry = self._login_module(listener, PLAIN)
        if entry is None and authenticator is None:
            key = f"listener.name.{listener.lower()}.plain.sasl.jaas.config"
            raise ConfigError(f'{key} is not set; it has the users: PlainLoginModule required user_NAME="PASSWORD";')
        options = {} if entry is None else entry.options
        users = PlainUsers(
            {name.removeprefix(_USER_PREFIX): value for name, value in options.items() if name.startswith(_USER_PREFIX)}
        )
        return lambda: PlainServerExchange(users, authenticator)

    def _scram(self, mechanism: str, credentials: Credentials) -> Callable[[], ServerExchange]:
        found = ScramCredentials(
            mechanism,
            of_user=lambda user: credentials.scram(mechanism, user),
            of_token=lambda token_id: credentials.token(mechanism, token_id),
            pretended=self._pretended,
        )
        return lambda: ScramServerExchange(found, new_nonce(self._entropy))

    def _login_module(self, listener: str, mechanism: str) -> JaasEntry | None:
        text = self._config.for_listener(listener, "sasl.jaas.config", mechanism)
        if not isinstance(text, Secret):
            return None
        return parse_one_login_module(text, f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config")


def inter_broker_sasl(
    config: BrokerConfig, entropy: Entropy, others: Mapping[str, Callable[[str], SaslFactory]]
) -> SaslFactory | None:
    """Return the SASL of connections to other brokers; None: their listener has none. Raises `ConfigError`.

    `others`: what makes that of mechanisms without passwords for a listener by its name.
    """
    index = config.inter_broker_listener
    if index is None or not config.listener_list[index].has_sasl:
        return None
    mechanism = config.sasl_mechanism_inter_broker_protocol.upper()
    name = config.listener_list[index].name
    if mechanism in others:
        return others[mechanism](name)
    text = config.for_listener(name, "sasl.jaas.config", mechanism)
    key = f"listener.name.{name.lower()}.{mechanism.lower()}.sasl.jaas.config"
    if not isinstance(text, Secret):
        raise ConfigError(f'{key} is not set; brokers connect with its username="NAME" password="PASSWORD"')
    return password_factory(mechanism, parse_one_login_module(text, key), entropy, key)


def add_bootstrap_users(config: BrokerConfig, registry: ClusterRegistry, entropy: Entropy) -> None:
    """Store the users of `sasl.scram.bootstrap.users` if the cluster has no users. Raises `ConfigError`."""
    text = config.sasl_scram_bootstrap_users
    if text is None or registry.image.entities(EntityKind.USERS):
        return
    changes: dict[str, Callable[[UserNode | None], UserNode | None]] = {}
    by_name: dict[str, dict[str, ScramCredential | None]] = {}
    for user in parse_bootstrap_users(text, "sasl.scram.bootstrap.users"):
        salt = entropy.token(_SALT_BYTES)
        salted = salted_password(user.mechanism, user.password.value, salt, user.iterations)
        by_name.setdefault(user.name, {})[user.mechanism] = credential_of(user.mechanism, salted, salt, user.iterations)
    for name, credentials in by_name.items():
        change = UserChange(credentials=credentials)
        changes[name] = lambda node, change=change: node or change.apply(node)  # type: ignore[misc]  # of this user
    complete(registry.change_entities(EntityKind.USERS, changes))


def pretended_key(registry: ClusterRegistry, entropy: Entropy) -> Secret[bytes]:
    """Return the key of the salts of unknown SCRAM users, the same at all brokers and after restarts; the first broker
    that asks makes it. An unreadable one is replaced."""
    fresh = {"version": 1, "key": b64encode(entropy.token(_KEY_BYTES)).decode()}

    def change(stored: Mapping[str, object] | None) -> Mapping[str, object]:
        return fresh if stored is None or _key_in(stored) is None else stored

    if _key_in(registry.image.entities(EntityKind.KEYS).get(_PRETENDED, {})) is None:
        complete(registry.change_entities(EntityKind.KEYS, {_PRETENDED: change}, replace_unreadable=True))
    key = _key_in(registry.image.entities(EntityKind.KEYS)[_PRETENDED])
    assert key is not None
    return Secret(key)


def _key_in(stored: Mapping[str, object]) -> bytes | None:
    try:
        key = b64decode(str(stored.get("key", "")), validate=True)
    except ValueError:
        return None
    return key if len(key) == _KEY_BYTES else None
