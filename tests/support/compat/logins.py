"""The settings for a secured listener, once, and in the terms of each library."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

STORE_PASSWORD = "store-secret"
SERVICE = "kafka"
"""The first part of the broker's Kerberos principal."""
_SECURITY = "org.apache.kafka.common.security"


@attrs.frozen(kw_only=True)
class Way:
    """A row of the table: a protocol and how the client says who it is.

    user:     the principal that the broker must see, without its type.
    is_token: the client logs in by a delegation token.
    """

    listener: str
    protocol: str
    user: str
    mechanism: str = ""
    is_mutual: bool = False
    is_token: bool = False


WAYS: Mapping[str, Way] = {
    "tls": Way(listener="tls", protocol="SSL", user="ANONYMOUS"),
    "mutual-tls": Way(listener="mutual", protocol="SSL", user="certified", is_mutual=True),
    **{
        f"{protocol.lower()}-{mechanism.lower()}": Way(
            listener=protocol.lower(), protocol=protocol, user=mechanism.lower(), mechanism=mechanism
        )
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    },
    **{
        f"{protocol.lower()}-gssapi": Way(
            listener=f"gssapi_{protocol.lower()}", protocol=protocol, user="gssapi", mechanism="GSSAPI"
        )
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
    },
    "delegation-token": Way(
        listener="sasl_ssl", protocol="SASL_SSL", user="token-owner", mechanism="SCRAM-SHA-256", is_token=True
    ),
}


@attrs.frozen(kw_only=True)
class Login:
    """All that a client is given. Files are PEM but for the PKCS#12 stores of Java.

    authority:   the authority that the client trusts; None without TLS, as `authority_store`.
    certificate: the client's own key and certificate, in one file; None unless TLS is mutual, as `keystore`.
    name:        the user, the id of a delegation token, or the id of an OAuth client.
    secret:      the password, the HMAC of a delegation token in base64, or the secret of an OAuth client.
    token_file:  a file with the OAuth token, whose time has come at `token_ends_s`.
    token_url:   where the OAuth client gets the same token.
    keytab:      the keys of the Kerberos principal `name`; its ticket is in the cache as well.
    """

    way: Way
    bootstrap: str
    authority: Path | None = None
    authority_store: Path | None = None
    certificate: Path | None = None
    keystore: Path | None = None
    name: str = ""
    secret: str = ""
    token_file: Path | None = None
    token_ends_s: float = 0.0
    token_url: str = ""
    keytab: Path | None = None

    @property
    def token(self) -> str:
        return "" if self.token_file is None else self.token_file.read_text(encoding="ascii")


def java_settings(login: Login, *, store_type: str) -> dict[str, str]:
    """Return the settings of Apache Kafka's own client, with stores of the type PEM or PKCS12."""
    way = login.way
    settings = {"security.protocol": way.protocol}
    if login.authority is not None:
        stores: tuple[Path | None, Path | None] = (login.authority, login.certificate)
        if store_type == "PKCS12":
            stores = (login.authority_store, login.keystore)
            settings["ssl.truststore.password"] = STORE_PASSWORD
        settings |= {"ssl.truststore.type": store_type, "ssl.truststore.location": str(stores[0])}
        if stores[1] is not None:
            settings |= {"ssl.keystore.type": store_type, "ssl.keystore.location": str(stores[1])}
            if store_type == "PKCS12":
                settings |= {"ssl.keystore.password": STORE_PASSWORD, "ssl.key.password": STORE_PASSWORD}
    if way.mechanism:
        settings |= {"sasl.mechanism": way.mechanism, "sasl.jaas.config": _jaas(login)}
    if way.mechanism == "OAUTHBEARER":
        settings |= {
            "sasl.login.callback.handler.class": f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": f"file://{login.token_file}",
        }
    if way.mechanism == "GSSAPI":
        settings["sasl.kerberos.service.name"] = SERVICE
    return settings


def _jaas(login: Login) -> str:
    if login.way.mechanism == "OAUTHBEARER":
        return f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required;"
    if login.way.mechanism == "GSSAPI":
        return krb5_login(login.name, login.keytab)
    module = "plain.PlainLoginModule" if login.way.mechanism == "PLAIN" else "scram.ScramLoginModule"
    token = ' tokenauth="true"' if login.way.is_token else ""
    return f'{_SECURITY}.{module} required username="{login.name}" password="{login.secret}"{token};'


def krb5_login(principal: str, keytab: Path | None) -> str:
    """Return the login of a broker or a client by the keytab of its principal."""
    module = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true doNotPrompt=true"
    return f'{module} keyTab="{keytab}" principal="{principal}";'


def librdkafka_settings(login: Login) -> dict[str, Any]:
    """Return the settings of librdkafka; an OAuth token comes from its URL."""
    way = login.way
    settings: dict[str, Any] = {"bootstrap.servers": login.bootstrap, "security.protocol": way.protocol}
    if login.authority is not None:
        settings["ssl.ca.location"] = str(login.authority)
    if login.certificate is not None:
        settings |= {"ssl.certificate.location": str(login.certificate), "ssl.key.location": str(login.certificate)}
    if way.mechanism:
        settings["sasl.mechanism"] = way.mechanism
    if way.mechanism == "OAUTHBEARER":
        settings |= {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": login.name,
            "sasl.oauthbearer.client.secret": login.secret,
            "sasl.oauthbearer.token.endpoint.url": login.token_url,
        }
    elif way.mechanism == "GSSAPI":
        settings |= {
            "sasl.kerberos.service.name": SERVICE,
            "sasl.kerberos.keytab": str(login.keytab),
            "sasl.kerberos.principal": login.name,
        }
    elif way.mechanism:
        settings |= {"sasl.username": login.name, "sasl.password": login.secret}
    return settings


def python_settings(login: Login, token_provider: Any) -> dict[str, Any]:
    """Return the settings of kafka-python and aiokafka; `token_provider` gives an OAuth token."""
    way = login.way
    settings: dict[str, Any] = {"bootstrap_servers": login.bootstrap, "security_protocol": way.protocol}
    if login.authority is not None:
        context = ssl.create_default_context(cafile=login.authority)
        if login.certificate is not None:
            context.load_cert_chain(login.certificate)
        settings["ssl_context"] = context
    if way.mechanism:
        settings["sasl_mechanism"] = way.mechanism
    if way.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = token_provider
    elif way.mechanism == "GSSAPI":
        settings |= {"sasl_kerberos_service_name": SERVICE, "sasl_kerberos_domain_name": "localhost"}
    elif way.mechanism:
        settings |= {"sasl_plain_username": login.name, "sasl_plain_password": login.secret}
    return settings


def driver_settings(login: Login) -> dict[str, Any]:
    """Return the settings for the drivers of kafkajs and franz-go: the texts of files, not their names."""

    def text(file: Path | None) -> str:
        return "" if file is None else file.read_text(encoding="ascii")

    return {
        "tls": login.authority is not None,
        "authority": text(login.authority),
        "certificate": text(login.certificate),
        "mechanism": login.way.mechanism,
        "name": login.name,
        "secret": login.secret,
        "token": login.token,
        "isToken": login.way.is_token,
    }
