"""The keys of SASL and delegation tokens, by Kafka's names."""

from ...ports.values import Secret
from .key_table import key_table
from .keys import double_key, int_key, list_key, long_key, password_key, text_key


@key_table
class SaslKeys:
    """A part of the table; see `BrokerConfig`."""

    sasl_enabled_mechanisms: tuple[str, ...] = list_key(
        "sasl.enabled.mechanisms",
        ("GSSAPI",),
        doc="The SASL mechanisms of listeners SASL_PLAINTEXT and SASL_SSL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
        "OAUTHBEARER, GSSAPI.",
        scope="listener",
    )
    sasl_mechanism_inter_broker_protocol: str = text_key(
        "sasl.mechanism.inter.broker.protocol", "GSSAPI", doc="The SASL mechanism of connections to other brokers."
    )
    sasl_jaas_config: Secret[str] | None = password_key(
        "sasl.jaas.config",
        doc='The login module of a listener\'s mechanism: MODULE required name="value" ...; in JAAS.',
        scope="mechanism",
    )
    sasl_kerberos_service_name: str | None = text_key(
        "sasl.kerberos.service.name",
        None,
        doc="The Kerberos service of the brokers, usually kafka: the first part of their principals.",
        scope="mechanism",
    )
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = list_key(
        "sasl.kerberos.principal.to.local.rules",
        ("DEFAULT",),
        doc="`RULE:[COMPONENTS:FORM](PATTERN)s/PATTERN/REPLACEMENT/g/L`,...: users' names from Kerberos principals.",
    )
    sasl_server_callback_handler_class: str | None = text_key(
        "sasl.server.callback.handler.class",
        None,
        doc="The plug-in that checks user names and passwords of PLAIN (hook barnabas_authenticator).",
        scope="mechanism",
    )
    sasl_server_max_receive_size: int = int_key(
        "sasl.server.max.receive.size",
        524_288,
        1,
        doc="The largest frame of a client that is not authenticated; a larger one closes its connection.",
    )
    connection_authentication_timeout_ms: int = int_key(
        "connection.authentication.timeout.ms",
        30_000,
        1,
        doc="Ours. The time that a new connection has to authenticate; then it is closed.",
    )
    connections_max_reauth_ms: int = long_key(
        "connections.max.reauth.ms",
        0,
        0,
        doc="How long a SASL session lasts until the client must authenticate again; 0: without an end.",
        scope="mechanism",
    )
    connection_failed_authentication_delay_ms: int = int_key(
        "connection.failed.authentication.delay.ms",
        100,
        0,
        doc="How long a failed authentication waits for its answer.",
    )
    principal_builder_class: str | None = text_key(
        "principal.builder.class",
        None,
        doc="The plug-in that makes the principal of a connection (hook barnabas_principal_builder).",
        scope="listener",
    )
    sasl_scram_bootstrap_users: Secret[str] | None = password_key(
        "sasl.scram.bootstrap.users",
        doc="Ours. Users of a new cluster, which has none: SCRAM-SHA-512=[name=NAME,password=PASSWORD];...",
    )
    delegation_token_secret_key: Secret[str] | None = password_key(
        "delegation.token.secret.key",
        doc="The secret that delegation tokens are made with, the same at all brokers; unset: there are no tokens.",
    )
    delegation_token_max_lifetime_ms: int = long_key(
        "delegation.token.max.lifetime.ms", 604_800_000, 1, doc="The longest life of a delegation token."
    )
    delegation_token_expiry_time_ms: int = long_key(
        "delegation.token.expiry.time.ms", 86_400_000, 1, doc="How long a delegation token lives without a renewal."
    )
    delegation_token_expiry_check_interval_ms: int = long_key(
        "delegation.token.expiry.check.interval.ms",
        3_600_000,
        1,
        doc="How often expired delegation tokens are deleted.",
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = text_key(
        "sasl.oauthbearer.jwks.endpoint.url",
        None,
        doc="The keys that sign OAUTHBEARER tokens: https://... or file:///..., allowed by the two lists below.",
        scope="mechanism",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long_key(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        3_600_000,
        1,
        doc="The age at which the keys are read again.",
        scope="mechanism",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = long_key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        100,
        1,
        doc="The first pause after a failed reading of the keys; it doubles.",
        scope="mechanism",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = long_key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        10_000,
        1,
        doc="The longest such pause, and the time until a token with an unknown key has them read again.",
        scope="mechanism",
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = list_key(
        "sasl.oauthbearer.expected.audience",
        (),
        doc="A token must be for one of these audiences; empty: for any.",
        scope="mechanism",
    )
    sasl_oauthbearer_expected_issuer: str | None = text_key(
        "sasl.oauthbearer.expected.issuer",
        None,
        doc="A token must be of this issuer; unset: of any that has a key.",
        scope="mechanism",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = text_key(
        "sasl.oauthbearer.token.endpoint.url",
        None,
        doc="Where the broker requests OAUTHBEARER tokens for its connections to others: https://... or file:///....",
        scope="mechanism",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = text_key(
        "sasl.oauthbearer.client.credentials.client.id",
        None,
        doc="The client id of the broker for the token endpoint; else the option clientId of the login module.",
        scope="mechanism",
    )
    sasl_oauthbearer_client_credentials_client_secret: Secret[str] | None = password_key(
        "sasl.oauthbearer.client.credentials.client.secret",
        doc="The client secret of the broker; else the option clientSecret of the login module.",
        scope="mechanism",
    )
    sasl_oauthbearer_scope: str | None = text_key(
        "sasl.oauthbearer.scope",
        None,
        doc="The scope to request; else the option scope of the login module.",
        scope="mechanism",
    )
    sasl_login_callback_handler_class: str | None = text_key(
        "sasl.login.callback.handler.class",
        None,
        doc="Accepted where it is Kafka's own class for OAUTHBEARER, whose work the broker does.",
        scope="mechanism",
    )
    sasl_login_read_timeout_ms: int = int_key(
        "sasl.login.read.timeout.ms",
        10_000,
        1,
        doc="The time that the broker waits for the answer of the token endpoint.",
        scope="mechanism",
    )
    sasl_login_refresh_window_factor: float = double_key(
        "sasl.login.refresh.window.factor",
        0.8,
        0.5,
        1.0,
        doc="The part of a token's lifetime after which the broker requests the next one.",
        scope="mechanism",
    )
    sasl_oauthbearer_clock_skew_seconds: int = int_key(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        0,
        doc="The allowed difference of clocks for the times of a token.",
        scope="mechanism",
    )
    sasl_oauthbearer_sub_claim_name: str = text_key(
        "sasl.oauthbearer.sub.claim.name", "sub", doc="The claim that names the principal.", scope="mechanism"
    )
    org_apache_kafka_sasl_oauthbearer_allowed_urls: tuple[str, ...] = list_key(
        "org.apache.kafka.sasl.oauthbearer.allowed.urls",
        (),
        doc="The URLs that keys may be read from; a system property in Kafka.",
    )
    org_apache_kafka_sasl_oauthbearer_allowed_files: tuple[str, ...] = list_key(
        "org.apache.kafka.sasl.oauthbearer.allowed.files",
        (),
        doc="The files that keys may be read from; a system property in Kafka.",
    )
