"""Security settings of clients under all their names, and what does not fit together."""

import logging
import ssl

import pytest

from barnabas.app.clients.classic.consumer_connector import read_connector_settings
from barnabas.app.clients.classic.producer_settings import ClassicProducerSettings
from barnabas.app.clients.shared.settings import CommonSettings, ConsumerSettings, ProducerSettings, read_settings
from barnabas.app.compose.clients import client_connector
from barnabas.app.compose.tls import client_tls_of
from barnabas.app.config.security_settings import NO_SECURITY, SECRET_KEYS, SecuritySettings
from barnabas.ports.errors import ConfigError
from barnabas.ports.values import Secret

LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="pass\\"word";'
PASSWORD = "sesame-4711"


def security(config: dict[str, object], **given: object) -> SecuritySettings:
    return read_settings(CommonSettings, config, given).security


def test_client_without_security_settings_speaks_plaintext() -> None:
    assert read_settings(ProducerSettings, {}, {}).security is NO_SECURITY
    assert not NO_SECURITY.has_tls
    assert not NO_SECURITY.has_sasl
    assert read_settings(ConsumerSettings, {"security.protocol": "plaintext"}, {}).security == NO_SECURITY


@pytest.mark.parametrize(
    "config",
    [
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": LOGIN},
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": 'pass"word',
        },
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "scram-sha-256",
            "sasl.plain.username": "alice",
            "sasl.plain.password": 'pass"word',
        },
    ],
    ids=["java", "librdkafka", "kafka-python"],
)
def test_user_and_password_have_the_names_of_each_library(config: dict[str, object]) -> None:
    for found in (security(config), security({}, **{key.replace(".", "_"): value for key, value in config.items()})):
        login = found.login_module()
        assert (found.has_tls, found.has_sasl, found.sasl_mechanism) == (True, True, "SCRAM-SHA-256")
        assert (login.option("username"), login.option("password")) == ("alice", 'pass"word')


def test_files_of_certificates_have_the_names_of_each_library() -> None:
    java = security({"security.protocol": "SSL", "ssl.truststore.location": "/ca", "ssl.truststore.type": "pem"})
    rdkafka = security({"security.protocol": "ssl", "ssl.ca.location": "/ca"})
    python = security({}, security_protocol="SSL", ssl_cafile="/ca", ssl_check_hostname=False)
    assert {each.ssl_truststore_location for each in (java, rdkafka, python)} == {"/ca"}
    assert (java.ssl_truststore_type, java.ssl_endpoint_identification_algorithm) == ("PEM", "https")
    assert python.ssl_endpoint_identification_algorithm == "none"


def test_secrets_are_hidden_in_the_text_of_settings() -> None:
    found = read_settings(
        ProducerSettings,
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'M required username="alice" password="{PASSWORD}";',
            "ssl.key.password": PASSWORD,
            "ssl.keystore.password": Secret(PASSWORD),
        },
        {},
    )
    assert PASSWORD not in f"{found!r} {found} {found.security!r}"
    assert found.security.ssl_key_password.value == PASSWORD
    assert {"sasl.jaas.config", "sasl.password", "sasl.plain.password", "ssl.key.pem"} <= SECRET_KEYS
    assert "sasl.username" not in SECRET_KEYS


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"security.protocol": "TLS"}, "^security.protocol must be in"),
        ({"security.protocol": "SASL_SSL"}, "SASL_SSL needs sasl.mechanism, which is not set; known: PLAIN"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "MD5"}, "^sasl.mechanism must be in"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
            "sasl.mechanism=PLAIN needs a user name and a password: neither sasl.username nor sasl.jaas.config is set",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "alice"},
            "neither sasl.password nor sasl.jaas.config is set",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": 'M required username="alice";',
            },
            "sasl.jaas.config has no option password",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": LOGIN,
                "sasl.username": "x",
            },
            "sasl.jaas.config and sasl.username are both set",
        ),
        ({"sasl.mechanizm": "PLAIN"}, "unknown setting 'sasl.mechanizm'; did you mean 'sasl.mechanism'"),
        ({"ssl.truststore.type": "JKS"}, "^ssl.truststore.type must be in"),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "/a", "ssl.ca.pem": "-"},
            "ssl.truststore.location and ssl.truststore.certificates are both set",
        ),
        (
            {"security.protocol": "SSL", "ssl.keystore.certificate.chain": "-"},
            "ssl.keystore.certificate.chain needs ssl.keystore.key",
        ),
        ({"security.protocol": "SSL", "ssl.key.location": "/k"}, "ssl.key.location needs the certificate"),
        ({"security.protocol": "SSL", "ssl.enabled.protocols": "SSLv3"}, "expected TLSv1.2, TLSv1.3 or both"),
        ({"ssl.engine.factory.class": "a.B"}, "a Java class cannot run here"),
    ],
)
def test_settings_that_do_not_fit_are_named(config: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        security(config)


def test_no_error_quotes_a_secret() -> None:
    with pytest.raises(ConfigError) as caught:
        security({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.password": [PASSWORD]})
    assert str(caught.value) == "sasl.password: expected a string"


def test_settings_that_the_protocol_does_not_use_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "barnabas.client"):
        found = security({"ssl.ca.location": "/ca", "sasl.mechanism": "PLAIN", "sasl.password": PASSWORD})
    assert found.security_protocol == "PLAINTEXT"
    assert caplog.messages == [
        "sasl.mechanism, sasl.password, ssl.ca.location have no effect with security.protocol=PLAINTEXT"
    ]


def test_settings_that_tune_other_libraries_are_accepted_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    security({"ssl.keymanager.algorithm": "SunX509", "sasl.kerberos.ticket.renew.jitter": "0.05"})
    (warning,) = caplog.messages
    assert "ssl.keymanager.algorithm (it tunes Java's TLS" in warning


def test_context_of_tls_stands_in_place_of_all_other_settings_of_it() -> None:
    context = ssl.create_default_context()
    found = security({"security.protocol": "SSL"}, ssl_context=context)
    tls = client_tls_of(found)
    assert tls is not None
    assert tls.context is context
    with pytest.raises(ConfigError, match=r"^ssl\.context and ssl\.ca\.location are both set"):
        security({"security.protocol": "SSL", "ssl.context": context, "ssl.ca.location": "/ca"})
    with pytest.raises(ConfigError, match=r"ssl\.context.*expected an ssl\.SSLContext"):
        security({"security.protocol": "SSL", "ssl.context": "/ca"})
    with pytest.raises(ConfigError, match=r"create_default_context\(\)"):
        security({"security.protocol": "SSL", "ssl.context": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)})


def test_classic_clients_have_tls_and_no_sasl() -> None:
    tls = {"security.protocol": "SSL", "ssl.ca.location": "/ca"}
    assert read_settings(ClassicProducerSettings, tls, {}).security.has_tls
    settings, found = read_connector_settings({"groupid": "g", **tls}, {"ssl_check_hostname": False})
    assert (settings.groupid, found.ssl_truststore_location) == ("g", "/ca")
    sasl = security({}, security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="a", sasl_password=PASSWORD)
    with pytest.raises(ConfigError, match="the classic protocol has no SASL"):
        client_connector("127.0.0.1:1", protocol="classic", security=sasl)
