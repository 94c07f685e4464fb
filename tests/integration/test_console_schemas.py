"""Schemas, tables and audits in the web console, against a broker and a registry in this process."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.console_pages import Browser, console_of
from support.schema_registry import Asking, serving
from support.tables import Rows, commit_rows

from barnabas import Producer
from barnabas.console.pages.schemas import difference
from barnabas.pipeline.tables.formats import open_store
from barnabas.schemas import AvroEncoder, JsonSchemaEncoder, ProtobufEncoder
from barnabas.testing import TestBroker

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
LATER = {**ORDER, "fields": [*ORDER["fields"], {"name": "<b>title</b>", "type": "string", "default": ""}]}


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as running:
        yield running


@pytest.fixture(scope="module")
def registry(broker: TestBroker) -> Iterator[str]:
    with serving(broker.bootstrap) as url:
        yield url


@pytest.fixture
def browser(broker: TestBroker, registry: str) -> Iterator[Browser]:
    with console_of(broker.bootstrap, registry=registry) as console:
        yield console


def test_subject_shows_versions_and_their_difference(browser: Browser, registry: str) -> None:
    ask = Asking(registry)
    ask.register("orders/eu-value", json.dumps(ORDER))
    ask.register("orders/eu-value", json.dumps({**ORDER, "doc": "an <i>order</i>"}))
    assert "/subject?id=orders%2Feu-value" in browser.text("/schemas?q=orders/")
    page = browser.text("/subject?id=orders%2Feu-value")
    assert "BACKWARD" in page
    assert "version 1" in page
    assert "&lt;i&gt;order" in page
    assert "<i>order" not in page
    assert "<ins>+" in page
    assert "<ins>+" not in browser.text("/subject?id=orders%2Feu-value&version=1")
    assert browser.get("/subject?id=orders%2Feu-value&version=9").status_code == 404
    assert browser.get("/subject?id=absent").status_code == 404


def test_schema_is_checked_before_it_is_registered(browser: Browser, registry: str) -> None:
    Asking(registry).register("checked", json.dumps(ORDER))
    page = "/subject?id=checked"
    wrong = {**ORDER, "fields": [{"name": "id", "type": "string"}]}
    refused = browser.send("/subject", {"id": "checked", "kind": "AVRO", "text": json.dumps(wrong)}, page=page)
    assert "Not compatible" in refused.text
    later = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}
    form = {"id": "checked", "kind": "AVRO", "text": json.dumps(later)}
    assert "Compatible: it can be the next version." in browser.send("/subject", form, page=page).text
    assert "version 2" not in browser.text(page)
    browser.send("/subject", {**form, "register": "1"}, page=page)
    assert "version 2" in browser.text(page)
    assert "register a schema of subject checked" in browser.text("/changes")
    assert browser.send("/subject", {**form, "text": "{"}, page=page).status_code == 400


def test_values_with_schemas_are_decoded_filtered_and_sent(browser: Browser, broker: TestBroker, registry: str) -> None:
    with Producer(broker.bootstrap, encoder=AvroEncoder(registry, ORDER)) as producer:
        for number in range(3):
            producer.send("typed", {"id": number})
    page = browser.text("/topics/typed/messages?path=$.id+%3E+1")
    assert "&#34;id&#34;: 2" in page
    assert "&#34;id&#34;: 1" not in page
    assert "Avro · schema" in page
    assert 'value="schema" selected' in browser.text("/topics/typed/produce?from=0-2")
    form = {"value": '{"id": 77}', "value_form": "schema", "key_form": "none"}
    assert "at offset 3" in browser.send("/topics/typed/produce", form, page="/topics/typed/produce").text
    assert "&#34;id&#34;: 77" in browser.text("/topics/typed/messages/0/3")
    refused = browser.send("/topics/typed/produce", {**form, "value": '{"no": 1}'}, page="/topics/typed/produce")
    assert refused.status_code == 400
    broker.produce("typed", [b"\0\0\0\x7f\xff..."])
    assert "404" in browser.text("/topics/typed/messages/0/4?as=schema") or "not found" in browser.text(
        "/topics/typed/messages/0/4?as=schema"
    )


@pytest.mark.slow
def test_values_of_json_schema_and_protobuf_are_decoded(browser: Browser, broker: TestBroker, registry: str) -> None:
    from google.protobuf.struct_pb2 import Value

    schema = '{"type": "object", "properties": {"name": {"type": "string"}}}'
    with Producer(broker.bootstrap, encoder=JsonSchemaEncoder(registry, schema)) as producer:
        producer.send("named", {"name": "Ann"})
    with Producer(broker.bootstrap, encoder=ProtobufEncoder(registry, Value)) as producer:
        producer.send("values", Value(string_value="a value"))
    page = browser.text("/topics/named/messages")
    assert "JSON Schema · schema" in page
    assert "&#34;name&#34;: &#34;Ann&#34;" in page
    page = browser.text("/topics/values/messages")
    assert "Protobuf · schema" in page
    assert "a value" in page


def test_pages_say_what_starts_a_registry_a_warehouse_and_an_audit(broker: TestBroker, tmp_path: Path) -> None:
    with console_of(broker.bootstrap) as browser:
        assert "--registry" in browser.text("/schemas")
        assert "--warehouse" in browser.text("/tables")
        assert "it is not audited" in browser.text("/audits")
    with console_of(broker.bootstrap, warehouse=str(tmp_path)) as browser:
        assert "No tables yet" in browser.text("/tables")
        assert browser.get("/table?id=x").status_code == 404


def test_audit_shows_what_the_tiers_have_counted() -> None:
    with TestBroker() as audited:  # a broker of its own: other tests see one that is not audited
        with Producer(audited.bootstrap, callback_handler="audit") as producer:
            for number in range(5):
                producer.send("counted", b"%d" % number)
        with console_of(audited.bootstrap) as browser:
            page = browser.text("/audits")
            assert "counted" in page
            assert "producer" in page


def test_difference_leaves_equal_lines_out() -> None:
    before = "\n".join(str(number) for number in range(40))
    lines = difference(before, before.replace("20", "<20>"))
    assert ("removed", "20") in lines
    assert ("added", "<20>") in lines
    assert len(lines) < 15


@pytest.mark.slow
def test_tables_show_rows_versions_and_freshness(broker: TestBroker, tmp_path: Path) -> None:
    for name in ("sales", "views"):
        store = open_store(tmp_path / name, "delta")
        commit_rows(store, Rows("orders", "2024-01-01", range(10)))
        commit_rows(store, Rows("orders", "2024-01-02", range(10, 15)), Rows("bills", "2024-01-02", range(3)))
    (tmp_path / "notes").mkdir()
    with console_of(broker.bootstrap, warehouse=str(tmp_path)) as browser:
        page = browser.text("/tables")
        assert "/table?id=sales" in page
        assert ">18</td>" in page
        assert "delta" in page
        assert "/table?id=notes" not in page
        shown = browser.text("/table?id=views")
        assert "orders" in shown
        assert "bills" in shown
        assert ">Versions<" in shown
    with console_of(broker.bootstrap, warehouse=str(tmp_path / "sales")) as browser:
        assert "/table?id=sales" in browser.text("/tables")


@pytest.mark.slow
def test_reports_of_the_warehouse_are_linked_and_run_no_script(broker: TestBroker, tmp_path: Path) -> None:
    for name in ("sales", "views"):
        commit_rows(open_store(tmp_path / name, "delta"), Rows("orders", "2024-01-01", range(10)))
    page = "<title>x · Barnabas report</title><body><h1>charts</h1><script>alert(1)</script>" + "." * 100_000 + "end"
    for name in ("sales", "all"):
        (tmp_path / f"{name}.html").write_text(page, "utf-8")
    (tmp_path / "secret.html").write_text("<title>x</title>a secret")
    with console_of(broker.bootstrap, warehouse=str(tmp_path)) as browser:
        listed = browser.text("/tables")
        assert "/report?id=sales" in listed
        assert "/report?id=all" in listed
        assert "Report with charts" in browser.text("/table?id=sales")
        assert "There is no report of this table" in browser.text("/table?id=views")
        shown = browser.get("/report?id=sales")
        assert "<h1>charts</h1>" in shown.text
        assert shown.text.endswith("end")
        assert shown.text.count('<a href="/tables">') == 1
        assert browser.get("/favicon.ico").headers["content-type"].startswith("image/svg")
        assert "sandbox" in shown.headers["content-security-policy"]
        assert "script-src" not in shown.headers["content-security-policy"]
        for other in ("secret", "views", "../sales", str(tmp_path / "sales")):
            assert browser.get(f"/report?id={other}").status_code == 404
    with console_of(broker.bootstrap, warehouse=str(tmp_path / "sales")) as browser:
        assert "Report with charts" in browser.text("/table?id=sales")
