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
        doc='MODULE required name="value" ...; is the JAAS login module of a SASL mechanism of a listener.',
        scope="mechanism",
    )
    sasl_kerberos_service_name: str | None = text_key(
        "sasl.kerberos.service.name",
        None,
        doc="The Kerberos service name of the brokers, usually kafka: the first part of their principals.",
        scope="mechanism",
    )
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = list_key(
        "sasl.kerberos.principal.to.local.rules",
        ("DEFAULT",),
        doc="`RULE:[COMPONENTS:FORM](PATTERN)s/PATTERN/REPLACEMENT/g/L`,...: how a Kerberos principal becomes a user "
        "name.",
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
        doc="The maximum size of a frame before authentication. A connection that sends a larger one is closed.",
    )
    connection_authentication_timeout_ms: int = int_key(
        "connection.authentication.timeout.ms",
        30_000,
        1,
        doc="Ours. A connection that has not authenticated after this time is closed.",
    )
    connections_max_reauth_ms: int = long_key(
        "connections.max.reauth.ms",
        0,
        0,
        doc="The maximum lifetime of a SASL session, after which the client must authenticate again; 0: without limit.",
        scope="mechanism",
    )
    connection_failed_authentication_delay_ms: int = int_key(
        "connection.failed.authentication.delay.ms",
        100,
        0,
        doc="How long the broker delays the response to a failed authentication.",
    )
    principal_builder_class: str | None = text_key(
        "principal.builder.class",
        None,
        doc="The plug-in that builds the principal of a connection (hook barnabas_principal_builder).",
        scope="listener",
    )
    sasl_scram_bootstrap_users: Secret[str] | None = password_key(
        "sasl.scram.bootstrap.users",
        doc="Ours. The first SCRAM users of a new cluster: SCRAM-SHA-512=[name=NAME,password=PASSWORD];...",
    )
    delegation_token_secret_key: Secret[str] | None = password_key(
        "delegation.token.secret.key",
        doc="The secret that signs delegation tokens, the same at all brokers; unset: delegation tokens are disabled.",
    )
    delegation_token_max_lifetime_ms: int = long_key(
        "delegation.token.max.lifetime.ms",
        604_800_000,
        1,
        doc="The maximum lifetime of a delegation token, which renewals do not extend.",
    )
    delegation_token_expiry_time_ms: int = long_key(
        "delegation.token.expiry.time.ms",
        86_400_000,
        1,
        doc="The lifetime of a delegation token until it must be renewed.",
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
        doc="Where the keys for the signatures of OAUTHBEARER tokens are read: https://... or file:///..., as far as "
        "org.apache.kafka.sasl.oauthbearer.allowed.* permit.",
        scope="mechanism",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long_key(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        3_600_000,
        1,
        doc="The interval at which these keys are read again.",
        scope="mechanism",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = long_key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        100,
        1,
        doc="The first delay before a failed read of the keys is tried again; it doubles each time.",
        scope="mechanism",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = long_key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        10_000,
        1,
        doc="The maximum of that delay, and the minimum time between two reads because of tokens with unknown keys.",
        scope="mechanism",
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = list_key(
        "sasl.oauthbearer.expected.audience",
        (),
        doc="The accepted audiences of a token; empty: any.",
        scope="mechanism",
    )
    sasl_oauthbearer_expected_issuer: str | None = text_key(
        "sasl.oauthbearer.expected.issuer",
        None,
        doc="The accepted issuer of a token; unset: any.",
        scope="mechanism",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = text_key(
        "sasl.oauthbearer.token.endpoint.url",
        None,
        doc="Where the broker requests tokens for its connections to other brokers: https://... or file:///....",
        scope="mechanism",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = text_key(
        "sasl.oauthbearer.client.credentials.client.id",
        None,
        doc="The client id of the broker at the token endpoint; unset: the option clientId of the login module.",
        scope="mechanism",
    )
    sasl_oauthbearer_client_credentials_client_secret: Secret[str] | None = password_key(
        "sasl.oauthbearer.client.credentials.client.secret",
        doc="The client secret of the broker at the token endpoint; unset: the option clientSecret of the login "
        "module.",
        scope="mechanism",
    )
    sasl_oauthbearer_scope: str | None = text_key(
        "sasl.oauthbearer.scope",
        None,
        doc="The scope that the broker requests; unset: the option scope of the login module.",
        scope="mechanism",
    )
    sasl_login_callback_handler_class: str | None = text_key(
        "sasl.login.callback.handler.class",
        None,
        doc="Only Kafka's own class for OAUTHBEARER is accepted; the broker does its work without it.",
        scope="mechanism",
    )
    sasl_login_read_timeout_ms: int = int_key(
        "sasl.login.read.timeout.ms",
        10_000,
        1,
        doc="How long the broker waits for the response of the token endpoint.",
        scope="mechanism",
    )
    sasl_login_refresh_window_factor: float = double_key(
        "sasl.login.refresh.window.factor",
        0.8,
        0.5,
        1.0,
        doc="The fraction of a token's lifetime after which the broker requests the next one.",
        scope="mechanism",
    )
    sasl_oauthbearer_clock_skew_seconds: int = int_key(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        0,
        doc="The clock difference that is allowed when the times in a token are checked.",
        scope="mechanism",
    )
    sasl_oauthbearer_sub_claim_name: str = text_key(
        "sasl.oauthbearer.sub.claim.name", "sub", doc="The claim that names the principal.", scope="mechanism"
    )
    org_apache_kafka_sasl_oauthbearer_allowed_urls: tuple[str, ...] = list_key(
        "org.apache.kafka.sasl.oauthbearer.allowed.urls",
        (),
        doc="The URLs that keys and tokens may be read from; a system property in Kafka.",
    )
    org_apache_kafka_sasl_oauthbearer_allowed_files: tuple[str, ...] = list_key(
        "org.apache.kafka.sasl.oauthbearer.allowed.files",
        (),
        doc="The files that keys and tokens may be read from; a system property in Kafka.",
    )
