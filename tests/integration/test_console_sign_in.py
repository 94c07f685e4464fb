"""Signing in to the web console with the user's own credentials: the ACLs of the cluster decide."""

import json
from collections.abc import Iterator
from pathlib import Path
from time import time
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from support.console_pages import Browser, console_of

from barnabas import Admin, Broker
from barnabas.app.clients.admin.users import UserScramCredentialDeletion, UserScramCredentialUpsertion
from barnabas.ports.broker_api.acls import AclBinding, ResourceType
from barnabas.ports.broker_api.operations import Operation
from barnabas.ports.values import Secret

PASSWORDS = {"admin": "admin-secret", "ann": "ann-secret"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SECURITY = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}


KEY = RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})


def _token(user: str, *, lifetime_s: int = 1000, key: RSAKey = KEY) -> str:
    now = int(time())
    return jwt.encode({"alg": "RS256", "kid": "one"}, {"sub": user, "iat": now, "exp": now + lifetime_s}, key)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    keys: Path = tmp_path_factory.mktemp("provider") / "keys.json"
    keys.write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
    own = 'username="admin" password="admin-secret"'
    known = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    config = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        "org.apache.kafka.sasl.oauthbearer.allowed.files": str(keys),
        "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN} {own} {known};",
        "authorizer.class.name": "StandardAuthorizer",
        "super.users": "User:admin",
    }
    with Broker(storage="memory", listeners="SASL_PLAINTEXT://127.0.0.1:0", config=config) as running:
        with Admin(_client(running, "admin")) as admin:
            admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion(user=name, password=Secret(word)) for name, word in PASSWORDS.items()]
            )
            for topic in ("of-ann", "of-others"):
                admin.create_topic(topic, partitions=1)
            for operation in (Operation.READ, Operation.DESCRIBE_CONFIGS):
                admin.create_acl(
                    AclBinding(
                        resource_type=ResourceType.TOPIC,
                        resource_name="of-ann",
                        principal="User:ann",
                        operation=operation,
                    )
                )
        yield running


def _client(broker: Broker, user: str) -> dict[str, Any]:
    own = {"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": PASSWORDS[user]}
    return {"bootstrap.servers": broker.bootstrap, **SECURITY, **own}


@pytest.fixture
def browser(broker: Broker) -> Iterator[Browser]:
    with console_of(broker.bootstrap, security=SECURITY) as console:
        yield console


def _sign_in(browser: Browser, user: str, password: str | None = None, **more: str) -> Any:
    form = {"user": user, "password": PASSWORDS.get(user, "") if password is None else password, **more}
    return browser.send("/sign-in", {"mechanism": "SCRAM-SHA-256", "next": "/topics", **form}, page="/sign-in")


def test_pages_need_a_user_who_has_signed_in(browser: Browser) -> None:
    for address in ("/", "/topics", "/groups", "/acls", "/changes", "/topics/of-ann/messages"):
        asked = browser.get(address)
        assert asked.url.path == "/sign-in", address
        assert "of-ann" not in asked.text.replace("/topics/of-ann", "").replace("%2Ftopics%2Fof-ann", "")
    assert browser.get("/", headers={"hx-request": "true"}).headers["hx-redirect"] == "/sign-in"
    assert browser.get("/topics/of-ann/messages/live").status_code == 401
    assert browser.post("/create-topic", {"name": "x"}).status_code == 403


def test_wrong_password_is_refused_by_the_cluster(browser: Browser) -> None:
    refused = _sign_in(browser, "ann", "wrong")
    assert refused.status_code == 401
    assert "does not know this user" in refused.text
    assert browser.get("/").url.path == "/sign-in"


def test_user_sees_and_changes_what_the_acls_allow(browser: Browser, broker: Broker) -> None:
    page = _sign_in(browser, "ann")
    assert page.url.path == "/topics"
    assert "of-ann" in page.text
    assert "of-others" not in page.text
    assert browser.text("/topics/of-ann/messages")
    assert browser.get("/topics/of-others/messages").status_code in (403, 404)
    denied = browser.send("/create-topic", {"name": "new"}, page="/create-topic")
    assert denied.status_code == 400
    assert "authoriz" in denied.text.lower()
    assert browser.get("/acls").status_code == 403
    changes = browser.text("/changes")
    assert "create topic new" in changes
    assert "<td>ann</td>" in changes


def test_users_do_not_see_each_others_pages(browser: Browser, broker: Broker) -> None:
    with console_of(broker.bootstrap, security=SECURITY) as console:
        other = Browser(console.console)
        _sign_in(other, "ann")
        assert "of-others" in _sign_in(console, "admin", mechanism="PLAIN").text
        assert "of-others" not in other.text("/topics")
        console.send("/acls/create", {"principal": "User:bob", "resource_type": "TOPIC", "resource_name": "secret",
                                      "operation": "READ"}, page="/acls")  # fmt: skip
        assert "secret" not in other.text("/changes")
        assert "secret" in console.text("/changes")


def test_user_of_a_token_sees_what_the_acls_allow_until_it_expires(browser: Browser) -> None:
    form = {"mechanism": "OAUTHBEARER", "user": "", "next": "/topics"}
    asked = browser.text("/sign-in?with=token&next=/topics")
    assert "Access token" in asked
    for wrong, status in (("no token\u00e9", 400), (_token("ann", key=RSAKey.generate_key(2048)), 401)):
        refused = browser.send("/sign-in", {**form, "password": wrong}, page="/sign-in?with=token")
        assert refused.status_code == status
        assert wrong not in refused.text
    short = _token("ann")
    page = browser.send("/sign-in", {**form, "password": f"{short[:40]}\n{short[40:]}"}, page="/sign-in?with=token")
    assert page.url.path == "/topics"
    assert "of-ann" in page.text
    assert "of-others" not in page.text
    assert "<p>ann</p>" in page.text
    (connection,) = filter(None, (each.connection for each in browser.console._sessions.values()))
    assert connection._expires_s == pytest.approx(time() + 1000, abs=300)
    connection._expires_s = time()
    ended = browser.get("/topics")
    assert (ended.url.path, "has expired" in ended.text) == ("/sign-in", True)
    old = _token("ann", lifetime_s=-1)
    expired = browser.send("/sign-in", {**form, "password": old}, page="/sign-in?with=token")
    assert (expired.status_code, "has expired" in expired.text) == (400, True)
    assert old not in expired.text


def test_session_that_the_cluster_ends_leads_to_the_form(browser: Browser, broker: Broker) -> None:
    with Admin(_client(broker, "admin")) as admin:
        name, word = "passing", Secret("passing-secret")
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user=name, password=word)])
        assert _sign_in(browser, name, word.value).url.path == "/topics"
        admin.alter_user_scram_credentials([UserScramCredentialDeletion(user=name, mechanism="SCRAM-SHA-256")])
    connection = next(iter(browser.console._sessions.values())).connection
    assert connection is not None
    connection.admin.close()
    connection.admin = Admin(connection.settings)
    ended = browser.get("/users")
    assert ended.url.path == "/sign-in"
    assert "The cluster has ended your session" in ended.text


def test_kerberos_is_said_not_to_be_offered(broker: Broker) -> None:
    with console_of(broker.bootstrap, security={**SECURITY, "sasl.mechanism": "GSSAPI"}) as browser:
        page = browser.text("/sign-in")
        assert "Kerberos (GSSAPI) is not offered" in page
        assert "<option selected>SCRAM-SHA-256" in page
        assert "of-ann" in _sign_in(browser, "ann").text


def test_signing_in_and_out_changes_the_session(browser: Browser) -> None:
    browser.get("/sign-in")
    before = browser.cookie
    _sign_in(browser, "ann", next="//evil.example/")
    signed_in = browser.cookie
    assert signed_in != before
    out = browser.send("/sign-out", {}, page="/")
    assert out.url.path == "/sign-in"
    assert browser.cookie != signed_in
    assert browser.get("/topics").url.path == "/sign-in"
    browser.cookie = signed_in
    assert browser.get("/topics").url.path == "/sign-in"


def test_acls_users_and_quotas_are_changed(browser: Browser, broker: Broker) -> None:
    _sign_in(browser, "admin")
    acl = {"principal": "User:eve", "permission": "DENY", "operation": "WRITE", "resource_type": "TOPIC",
           "resource_name": "<orders>", "pattern_type": "PREFIXED", "host": "*"}  # fmt: skip
    assert "DENY WRITE on TOPIC PREFIXED &lt;orders&gt;" in browser.send("/acls/create", acl, page="/acls").text
    assert "User:eve" in browser.text("/acls?q=eve")
    assert "Deleted" in browser.send("/acls/delete", acl, page="/acls").text
    assert "User:eve" not in browser.text("/acls?q=eve")
    assert browser.send("/acls/create", {**acl, "operation": "DANCE"}, page="/acls").status_code == 400
    password = {"user": "carl", "password": "c-secret", "mechanism": "SCRAM-SHA-256"}
    saved = browser.send("/users/set", password, page="/users")
    assert "User carl has a new SCRAM-SHA-256 password." in saved.text
    assert "c-secret" not in saved.text + browser.text("/changes")
    with Admin(
        {"bootstrap.servers": broker.bootstrap, **SECURITY, "sasl.username": "carl", "sasl.password": "c-secret"}
    ) as carl:
        assert carl.describe_cluster().brokers
    browser.send("/users/delete", {"user": "carl", "mechanism": "SCRAM-SHA-256"}, page="/users")
    assert "carl" not in browser.text("/users?q=carl").replace('value="carl"', "")
    quota = {"user": "carl", "client-id": "<default>", "key": "producer_byte_rate", "value": "1000000"}
    browser.send("/quotas/set", quota, page="/quotas")
    assert "user=carl, client-id=&lt;default&gt;" in browser.text("/quotas")
    browser.send("/quotas/set", {**quota, "value": ""}, page="/quotas")
    assert "user=carl" not in browser.text("/quotas")
    assert browser.send("/quotas/set", {"key": "producer_byte_rate", "value": "1"}, page="/quotas").status_code == 400


def test_console_with_credentials_of_its_own_needs_no_sign_in(broker: Broker) -> None:
    own = {key: value for key, value in _client(broker, "ann").items() if key != "bootstrap.servers"}
    with console_of(broker.bootstrap, security=own) as browser:
        page = browser.text("/topics")
        assert "of-ann" in page
        assert "of-others" not in page
        assert "Sign out" not in page
        assert PASSWORDS["ann"] not in page
