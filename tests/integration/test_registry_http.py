"""The answers of the registry, with their error codes."""

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from support.schema_registry import Asking, serving
from support.waiting import PATIENCE_S

from barnabas.app.compose import http_server
from barnabas.schemas.registry import server
from barnabas.schemas.registry.records import Noop, Record
from barnabas.schemas.registry.registry import Registry
from barnabas.schemas.registry.state import Subjects
from barnabas.testing import TestBroker

ONE = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
TWO = '{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}'
OTHER = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as running:
        yield running


@pytest.fixture
def ask(broker: TestBroker, request: pytest.FixtureRequest) -> Iterator[Asking]:
    with serving(broker.bootstrap, f"_schemas-{request.node.name[:100]}") as url:
        yield Asking(url)


def test_deleting_has_two_steps(ask: Asking) -> None:
    assert ask.register("s", ONE) == 1
    assert ask.register("s", TWO) == 2
    assert ask.code("DELETE", "/subjects/s?permanent=true") == (404, 40405)
    assert ask.code("DELETE", "/subjects/s/versions/2?permanent=true") == (404, 40407)
    assert ask("DELETE", "/subjects/s/versions/latest") == (200, 2)
    assert ask.code("DELETE", "/subjects/s/versions/2") == (404, 40406)
    assert ask("GET", "/subjects/s/versions") == (200, [1])
    assert ask("GET", "/subjects/s/versions?deleted=true") == (200, [1, 2])
    assert ask.code("GET", "/subjects/s/versions/2") == (404, 40402)
    assert ask("GET", "/schemas/ids/2") == (200, {"schema": TWO})  # readers of old messages continue
    assert ask.register("s", TWO) == 2
    assert ask("GET", "/subjects/s/versions") == (200, [1, 3])  # no number is given twice
    assert ask("DELETE", "/subjects/s") == (200, [1, 3])
    assert ask.code("DELETE", "/subjects/s") == (404, 40404)
    assert ask.code("GET", "/subjects/s/versions") == (404, 40401)
    assert ask("GET", "/subjects") == (200, [])
    assert ask("GET", "/subjects?deleted=true") == (200, ["s"])
    assert ask("DELETE", "/subjects/s?permanent=true") == (200, [1, 2, 3])
    assert ask.code("GET", "/schemas/ids/2") == (404, 40403)
    assert ask.register("s", OTHER) == 3  # nor is an id
    assert ask("GET", "/subjects/s/versions") == (200, [1])


def test_numbers_that_other_readers_of_json_do_not_know(ask: Asking) -> None:
    for number in (b"NaN", b"-Infinity", b"1e999"):
        body = b'{"schema": "\\"int\\"", "metadata": {"properties": {"a": %s}}}' % number
        assert ask.code("POST", "/subjects/s/versions", body) == (400, 400)
    assert ask("GET", "/schemas") == (200, [])


def test_missing_subject_and_version_are_reported(ask: Asking) -> None:
    ask.register("s", ONE)
    for method, path, body, expected in (
        ("GET", "/subjects/x/versions", None, (404, 40401)),
        ("GET", "/subjects/x/versions/1", None, (404, 40401)),
        ("GET", "/subjects/s/versions/9", None, (404, 40402)),
        ("GET", "/subjects/s/versions/0", None, (422, 42202)),
        ("GET", "/subjects/s/versions/new", None, (422, 42202)),
        ("GET", "/subjects/s/versions/99999999999999999999", None, (422, 42202)),
        ("GET", "/schemas/ids/7", None, (404, 40403)),
        ("GET", "/schemas/ids/x", None, (404, 404)),
        ("DELETE", "/subjects/x", None, (404, 40401)),
        ("DELETE", "/subjects/s/versions/9", None, (404, 40402)),
        ("POST", "/subjects/x", {"schema": ONE}, (404, 40401)),
        ("POST", "/subjects/s", {"schema": TWO}, (404, 40403)),
        ("POST", "/subjects/s/versions", {"schema": '{"type":"recor"}'}, (422, 42201)),
        ("POST", "/subjects/s/versions", {"schema": ONE, "schemaType": "XML"}, (422, 42201)),
        ("POST", "/subjects/s/versions", {"schema": 1}, (422, 422)),
        ("POST", "/subjects/s/versions", {}, (422, 42201)),
        ("POST", "/subjects/s/versions", [], (422, 422)),
        ("POST", "/subjects/s/versions", b"{", (400, 400)),
        ("POST", "/subjects/s/versions", b"[" * 100_000, (400, 400)),
        ("POST", "/subjects/s/versions", {"schema": OTHER}, (409, 409)),
        ("POST", "/subjects/s/versions", {"schema": TWO, "id": 9}, (422, 42205)),
        ("POST", "/subjects/:.other:s/versions", {"schema": ONE}, (422, 42205)),
        ("GET", "/config/s", None, (404, 40408)),
        ("PUT", "/config", {"compatibility": "SIDEWAYS"}, (422, 42203)),
        ("DELETE", "/config/s", None, (404, 40401)),
        ("GET", "/mode/s", None, (404, 40409)),
        ("PUT", "/mode", {"mode": "OFF"}, (422, 42204)),
        ("PUT", "/mode", {"mode": "IMPORT"}, (422, 42205)),
        ("GET", "/nowhere", None, (404, 404)),
        ("PUT", "/subjects", {}, (405, 405)),
    ):
        assert ask.code(method, path, body) == expected, (method, path, body)
    assert ask("POST", "/subjects/s/versions", b"x", Content_Type="text/plain")[0] == 415
    assert ask("GET", "/subjects", Accept="text/html")[0] == 406
    deep = '{"type":"array","items":' * 2000 + '"int"' + "}" * 2000
    assert ask.code("POST", "/subjects/s/versions", {"schema": deep}) == (422, 42201)
    assert ask.code("POST", "/subjects/t/versions", {"schema": '"int"' + " " * 5_000_000}) == (422, 42201)
    assert ask("GET", "/subjects") == (200, ["s"])


def test_registry_lists_subjects_versions_and_schemas(ask: Asking) -> None:
    ask.register("a/b", ONE)
    ask.register("a/b", TWO)
    ask.register("c d", ONE)
    assert ask("GET", "/") == (200, {})
    assert ask("GET", "/subjects?subjectPrefix=a") == (200, ["a/b"])
    assert ask("GET", "/subjects/a%2Fb/versions/1") == (200, {"subject": "a/b", "version": 1, "id": 1, "schema": ONE})
    assert ask("GET", "/subjects/c%20d/versions/latest/schema")[1] == json.loads(ONE)
    assert ask("GET", "/schemas/ids/1/subjects") == (200, ["a/b", "c d"])
    assert ask("GET", "/schemas/ids/1/versions") == (
        200,
        [{"subject": "a/b", "version": 1}, {"subject": "c d", "version": 1}],
    )
    assert [each["id"] for each in ask("GET", "/schemas")[1]] == [1, 2, 1]
    assert [each["id"] for each in ask("GET", "/schemas?latestOnly=true")[1]] == [2, 1]
    assert [each["id"] for each in ask("GET", "/schemas?offset=1&limit=1")[1]] == [2]
    assert set(ask("GET", "/schemas/types")[1]) == {"AVRO", "JSON", "PROTOBUF"}


def test_levels_and_modes(ask: Asking) -> None:
    ask.register("s", ONE)
    assert ask("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    assert ask("GET", "/config/s?defaultToGlobal=true") == (200, {"compatibilityLevel": "BACKWARD"})
    assert ask("PUT", "/config/s", {"compatibility": "NONE"}) == (200, {"compatibility": "NONE"})
    assert ask("GET", "/config/s") == (200, {"compatibilityLevel": "NONE"})
    assert ask("DELETE", "/config/s") == (200, {"compatibilityLevel": "NONE"})
    assert ask("PUT", "/mode", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    assert ask.code("POST", "/subjects/s/versions", {"schema": TWO}) == (422, 42205)
    assert ask.code("DELETE", "/subjects/s") == (422, 42205)
    assert ask("PUT", "/mode/s", {"mode": "READWRITE"}) == (200, {"mode": "READWRITE"})
    assert ask.register("s", TWO) == 2
    assert ask("DELETE", "/mode/s") == (200, {"mode": "READWRITE"})
    assert ask("PUT", "/mode?force=true", {"mode": "IMPORT"}) == (200, {"mode": "IMPORT"})
    assert ask.code("POST", "/subjects/t/versions", {"schema": OTHER}) == (422, 42205)
    assert ask.register("t", OTHER, id=70, version=7) == 70
    assert ask.code("POST", "/subjects/u/versions", {"schema": ONE, "id": 70}) == (422, 42205)
    assert ask("PUT", "/mode", {"mode": "READWRITE"}) == (200, {"mode": "READWRITE"})
    ask("PUT", "/config/t", {"compatibility": "NONE"})
    assert ask.register("t", '"string"') == 71
    assert ask("GET", "/subjects/t/versions") == (200, [7, 8])


def test_compatibility_is_checked_without_registering(ask: Asking) -> None:
    def check(path: str, schema: str) -> Any:
        return ask("POST", f"/compatibility/subjects/{path}", {"schema": schema})[1]

    ask.register("s", ONE)
    ask.register("s", TWO)
    assert check("s/versions/latest", ONE) == {"is_compatible": False}
    assert check("s/versions/1", ONE) == {"is_compatible": True}
    assert check("s/versions/latest?verbose=true", TWO) == {"is_compatible": True, "messages": []}
    verbose = check("s/versions?verbose=true", OTHER)
    assert verbose["is_compatible"] is False
    assert "At /fields/0/type: the new schema has STRING, the old schema has LONG" in verbose["messages"][0]
    assert check("new/versions/latest", ONE) == {"is_compatible": True}
    assert ask.code("POST", "/compatibility/subjects/s/versions/5", {"schema": ONE}) == (404, 40402)


def test_normalize_option_finds_equivalent_schema(ask: Asking) -> None:
    """The schema differs in its form only."""
    said = '{"type":"record","name":"a.R","x":1,"y":2,"fields":[{"name":"e","type":"a.R"}]}'
    again = '{"y":2,"x":1,"name":"R","namespace":"a","type":"record","fields":[{"name":"e","type":"R"}]}'
    assert ask.register("s", said) == 1
    assert ask("POST", "/subjects/s", {"schema": again})[0] == 404
    assert ask("POST", "/subjects/s?normalize=true", {"schema": again})[1]["version"] == 1
    assert ask("POST", "/subjects/s/versions?normalize=true", {"schema": again})[1]["id"] == 1
    assert ask("GET", "/subjects/s/versions") == (200, [1])


def test_two_registries_at_once_never_give_an_id_twice(broker: TestBroker) -> None:
    topic = "_schemas-two"
    with serving(broker.bootstrap, topic) as one, serving(broker.bootstrap, topic) as two:
        asking = [Asking(one), Asking(two)]

        def register(number: int) -> tuple[int, int]:
            schema = f'{{"type":"fixed","name":"F{number % 50}","size":1}}'
            return number % 50, asking[number % 2].register(f"s{number % 25}", schema)

        asking[0]("PUT", "/config", {"compatibility": "NONE"})
        with ThreadPoolExecutor(20) as pool:
            given = list(pool.map(register, range(100)))
        ids: dict[int, int] = {}
        for schema, number in given:
            assert ids.setdefault(schema, number) == number
        assert sorted(ids.values()) == list(range(1, 51))
        assert asking[0]("GET", "/schemas") == asking[1]("GET", "/schemas")
        with serving(broker.bootstrap, topic) as third:
            assert Asking(third)("GET", "/schemas") == asking[0]("GET", "/schemas")


def test_http_client_without_a_complete_request_is_closed(broker: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "FIRST_REQUEST_S", 0.3)
    monkeypatch.setattr(server, "BODY_S", 0.3)
    with serving(broker.bootstrap, "_schemas-slow") as url:
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as silent:
            assert silent.recv(1) == b""
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as slow:
            slow.sendall(b"POST /subjects/s/versions HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
            assert slow.recv(100).startswith(b"HTTP/1.1 408 ")
        assert Asking(url)("GET", "/subjects") == (200, [])


def test_half_open_connections_do_not_block_registry(broker: TestBroker) -> None:
    with serving(broker.bootstrap) as url, ExitStack() as stack:
        host, _, port = url.removeprefix("http://").partition(":")
        for _ in range(60):
            half_open = stack.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE_S))
            half_open.sendall(b"GET /contexts HTTP/1.1\r\n")
        assert Asking(url)("GET", "/contexts") == (200, ["."])


def test_incomplete_second_request_is_closed_after_timeout(broker: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "FIRST_REQUEST_S", 0.3)
    with serving(broker.bootstrap) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as peer:
            peer.sendall(b"GET /contexts HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b""
            while not answer.endswith(b'["."]'):
                answer += peer.recv(4096)
            peer.sendall(b"GET /cont")
            assert peer.recv(4096) == b""


def test_schema_is_found_by_the_guid_that_its_registration_answers(ask: Asking) -> None:
    status, answer = ask("POST", "/subjects/s/versions", json.dumps({"schema": ONE}).encode())
    assert status == 200
    assert ask("POST", "/subjects/other/versions", json.dumps({"schema": ONE}).encode()) == (200, answer)
    guid = answer["guid"]
    assert ask("GET", f"/schemas/guids/{guid}") == (200, {"schema": ONE, "guid": guid})
    assert ask("GET", f"/schemas/guids/{guid.upper()}/ids") == (200, [{"context": ".", "id": answer["id"]}])
    assert ask.code("GET", "/schemas/guids/00000000-0000-0000-0000-000000000000") == (404, 40403)


def test_latest_version_is_found_by_its_metadata(ask: Asking) -> None:
    for schema, owner in ((ONE, "payments"), (TWO, "payments"), ('"string"', "orders")):
        metadata = {"properties": {"owner": owner, "tier": "1"}}
        ask("PUT", "/config/s", b'{"compatibility": "NONE"}')
        body = json.dumps({"schema": schema, "metadata": metadata}).encode()
        assert ask("POST", "/subjects/s/versions", body)[0] == 200
    status, found = ask("GET", "/subjects/s/metadata?key=owner&value=payments&key=tier&value=1")
    assert (status, found["version"], found["schema"]) == (200, 2, TWO)
    assert ask.code("GET", "/subjects/s/metadata?key=owner&value=nobody") == (404, 40403)
    assert ask.code("GET", "/subjects/none/metadata?key=owner&value=orders") == (404, 40401)
    assert ask.code("GET", "/subjects/s/metadata?key=owner") == (422, 422)


def test_refusals_have_the_words_of_the_confluent_registry(ask: Asking) -> None:
    assert ask.register("s", ONE) == 1
    status, refused = ask("POST", "/subjects/s/versions", json.dumps({"schema": OTHER}).encode())
    assert (status, refused["error_code"]) == (409, 409)
    assert refused["message"].startswith(
        'Schema being registered is incompatible with an earlier schema for subject "s", details: [{errorType:'
    )
    assert "{oldSchemaVersion: 1}" in refused["message"]
    assert "oldSchema:" not in refused["message"], "the earlier schema may be long; its version is enough to get it"
    _, refused = ask("GET", "/subjects/s/versions/0")
    assert refused == {
        "error_code": 42202,
        "message": "The specified version '0' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
    }


@pytest.mark.slow
def test_time_of_a_slow_decision_is_not_blamed_on_the_brokers(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(broker.bootstrap, "_schemas-slow", timeout_s=3.0)
    registry.start()
    try:
        registry.following.wait_loaded()
        left: list[float] = []
        wait_for = registry.following.wait_for

        def noting(offset: int, timeout: float) -> None:
            left.append(timeout)
            wait_for(offset, timeout)

        monkeypatch.setattr(registry.following, "wait_for", noting)

        def decide(_: Subjects) -> tuple[int, list[Record]]:
            time.sleep(3.1)  # a compatibility check that takes longer than the brokers may
            return 7, [Noop()]

        answers = [registry.change(decide) for _ in range(2)]
        assert [answer.result(PATIENCE_S) for answer in answers] == [7, 7]
        assert min(left) > 0.1, "the brokers had no time left"
    finally:
        registry.stop()
