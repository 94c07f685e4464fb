"""The client of a registry: asks once, then tries another address, and says what to do."""

import pickle
import threading
from collections.abc import Iterator

import pytest
from support.registry_stub import RegistryStub, registry_stub

from barnabas.ports.errors import ConfigError
from barnabas.schemas.client import RegistryClient, RegistryRefused, RegistryUnreachable, SchemaReference

UNREACHABLE = "http://127.0.0.1:1"


@pytest.fixture
def stub() -> Iterator[RegistryStub]:
    with registry_stub() as running:
        yield running


def test_an_id_is_asked_for_once_however_many_threads_want_it(stub: RegistryStub) -> None:
    schema_id = stub.put("orders-value", '"string"')
    client = RegistryClient(stub.url)
    threads = [threading.Thread(target=client.by_id, args=(schema_id,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.by_id(schema_id).text == '"string"'
    assert stub.asked[f"GET /schemas/ids/{schema_id}"] == 1


def test_an_unknown_id_is_asked_for_again_only_after_a_while(stub: RegistryStub) -> None:
    now = [0.0]
    client = RegistryClient(stub.url, clock=lambda: now[0])
    for _ in range(3):
        with pytest.raises(RegistryRefused, match="Schema not found; was the message written with another registry"):
            client.by_id(1)
    assert stub.asked["GET /schemas/ids/1"] == 1
    stub.put("late-value", '"long"')
    now[0] = 31.0
    assert client.by_id(1).text == '"long"'


def test_the_newest_version_is_asked_for_again_after_a_minute(stub: RegistryStub) -> None:
    now = [0.0]
    client = RegistryClient(stub.url, clock=lambda: now[0])
    stub.put("t-value", '"int"')
    assert client.latest("t-value").version == 1
    stub.put("t-value", '"long"')
    assert client.latest("t-value").version == 1
    assert client.latest("t-value", fresh=True).version == 2
    now[0] = 61.0
    assert client.latest("t-value").text == '"long"'


def test_the_next_address_is_asked_and_a_failing_one_again(stub: RegistryStub) -> None:
    stub.put("t-value", '"int"')
    assert RegistryClient(f"{UNREACHABLE},{stub.url}").latest("t-value").id == 1
    stub.fails = 1
    assert RegistryClient(stub.url, tries=2).by_id(1).text == '"int"'
    stub.fails = 1
    with pytest.raises(RegistryUnreachable, match="not ready"):
        RegistryClient(stub.url, tries=1).by_id(1)
    with pytest.raises(RegistryUnreachable, match=r"no schema registry answers .*start one, or correct the address"):
        RegistryClient(UNREACHABLE, tries=1).by_id(1)


def test_name_and_password_stand_in_the_address_and_nowhere_else(stub: RegistryStub) -> None:
    stub.needs = "Basic YW5uOnNlY3JldA=="  # ann:secret
    stub.put("t-value", '"int"')
    assert RegistryClient(stub.url.replace("//", "//ann:secret@")).by_id(1).id == 1
    with pytest.raises(RegistryRefused, match="give name and password in the address") as refused:
        RegistryClient(stub.url.replace("//", "//ann:wrong@")).by_id(1)
    assert "wrong" not in str(refused.value)


def test_a_schema_is_registered_and_found(stub: RegistryStub) -> None:
    client = RegistryClient(stub.url)
    with pytest.raises(RegistryRefused, match="register the schema, or let the encoder do it"):
        client.look_up("a/b-value", "JSON", "{}")
    schema_id = client.register("a/b-value", "JSON", "{}")
    client = RegistryClient(stub.url)
    assert client.look_up("a/b-value", "JSON", "{}") == schema_id
    assert client.version_of("a/b-value", "JSON", "{}") == 1
    assert client.by_id(schema_id).kind == "JSON"


def test_references_of_a_schema_come_in_order(stub: RegistryStub) -> None:
    stub.put("a", '"inner"')
    stub.put("b", '"middle"', references=[{"name": "A", "subject": "a", "version": 1}])
    schema_id = stub.put("c", '"outer"', references=[{"name": "B", "subject": "b", "version": 1}])
    client = RegistryClient(stub.url)
    assert client.by_id(schema_id).references == (SchemaReference("B", "b", 1),)
    assert list(client.referred(client.by_id(schema_id).references).items()) == [("A", '"inner"'), ("B", '"middle"')]


def test_a_client_goes_to_another_process_by_its_addresses(stub: RegistryStub) -> None:
    stub.put("t", '"int"')
    assert pickle.loads(pickle.dumps(RegistryClient(stub.url))).by_id(1).text == '"int"'


@pytest.mark.parametrize("wrong", ["", " , ", "127.0.0.1:8081", "ftp://h", "http://", "http://h:port"])
def test_an_address_that_is_none(wrong: str) -> None:
    with pytest.raises(ConfigError, match="schema registry"):
        RegistryClient(wrong)
