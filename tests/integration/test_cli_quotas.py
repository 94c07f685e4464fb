"""`barnabas quotas` at a broker."""

import json
from collections.abc import Iterator

import pytest
from support.command import Command

from barnabas import Admin
from barnabas.app.clients.admin.quotas import ClientQuotaAlteration
from barnabas.testing import TestBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as running:
        yield running


def test_quotas_are_added_listed_and_removed(broker: TestBroker, capsys: pytest.CaptureFixture[str]) -> None:
    run = Command(capsys, "--bootstrap", broker.bootstrap)
    dry = run("quotas", "add", "producer_byte_rate=1048576", "--user", "alice", "--dry-run")
    assert "producer_byte_rate  1048576" in dry.out
    assert json.loads(run("quotas", "list", "--user", "alice", "--json").out) == []
    run("quotas", "add", "producer_byte_rate=1048576", "request_percentage=12.5", "--user", "alice")
    run("quotas", "add", "consumer_byte_rate=5000", "--user", "alice", "--client-id-default")
    listed = run("quotas", "list", "--user", "alice", "--json").out
    assert json.loads(listed) == [
        {"entity": {"user": "alice"}, "key": "producer_byte_rate", "value": 1048576.0},
        {"entity": {"user": "alice"}, "key": "request_percentage", "value": 12.5},
        {"entity": {"user": "alice", "client-id": None}, "key": "consumer_byte_rate", "value": 5000.0},
    ]
    assert "user=alice, client-id=<default>  consumer_byte_rate " in run("quotas", "list").out
    run("quotas", "remove", "request_percentage", "--user", "alice")
    removed = run("quotas", "remove", "--user", "alice").out
    assert "producer_byte_rate" in removed
    assert "request_percentage" not in removed
    assert "consumer_byte_rate" in run("quotas", "list").out


def test_wrong_usage_of_quotas_is_named(broker: TestBroker, capsys: pytest.CaptureFixture[str]) -> None:
    run = Command(capsys, "--bootstrap", broker.bootstrap)
    assert "name an entity" in run("quotas", "add", "producer_byte_rate=1", expect=2).err
    assert "expected a number" in run("quotas", "add", "producer_byte_rate=x", "--user", "a", expect=2).err
    assert "has no quotas" in run("quotas", "remove", "--user", "nobody", expect=2).err
    assert "excludes" in run("quotas", "list", "--user", "a", "--user-default", expect=2).err


def test_admin_changes_the_limits_of_an_entity_together(broker: TestBroker) -> None:
    with Admin(broker.bootstrap) as admin:
        entity = {"ip": "127.0.0.9"}
        admin.alter_client_quotas([ClientQuotaAlteration(entity=entity, limits={"connection_creation_rate": 3})])
        found = admin.describe_client_quotas(entity)
        assert [(dict(each.entity), dict(each.limits)) for each in found] == [(entity, {"connection_creation_rate": 3})]
