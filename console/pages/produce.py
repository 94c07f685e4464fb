"""Sends a message to a topic, or one of a topic again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from ... import BarnabasError, ConfigError
from ..application import PageCall, PageRoute
from ..decoding import Decoded
from ..reading import read_one
from ..rendering import segment
from .topics import describe, whole

FIELDS = ("partition", "key", "key_form", "value", "value_form", "headers", "subject")
VALUE_FORMS = ("text", "json", "hex", "null", "schema")
KEY_FORMS = ("none", "text", "hex")


def ask_for_message(call: PageCall) -> Response:
    """Show the form for a message; with `from` of the address filled with that of PARTITION-OFFSET."""
    topic = describe(call)
    given = {**dict.fromkeys(FIELDS, ""), "key_form": "none", "value_form": "text"}
    partition, dash, offset = call.query("from").partition("-")
    if dash and partition.isdigit() and offset.isdigit():
        found = read_one(call.connection.consumer, topic.name or "", int(partition), int(offset))
        if found is not None:
            decoders = call.console.decoders
            key, value = decoders.key(found.message), decoders.value(found.message)
            given |= {
                "key": _text_of(key, found.message.key),
                "key_form": {"null": "none", "hex": "hex"}.get(key.kind, "text"),
                "value": _text_of(value, found.message.value),
                "value_form": _form_of(value),
                "headers": "\n".join(
                    f"{name}: {decoders.header(each).text}" for name, each in found.message.headers if each is not None
                ),
            }
    return _page(call, given, "")


def send(call: PageCall) -> Response:
    """Send the message of the form; what is wrong with it is shown in the form."""
    topic = describe(call)
    name = topic.name or ""
    given = {field: call.form.get(field, "") for field in FIELDS}
    try:
        value, key = _value(call, name, given), _bytes(given["key"], given["key_form"], "key")
        partition = whole(given["partition"], "partition") if given["partition"].strip() else None
        with call.change(f"send a message to topic {name}"):
            handle = call.connection.producer.send(
                name, value, key, partition=partition, headers=_headers(given["headers"])
            )
            sent = handle.result()
    except BarnabasError as error:
        return _page(call, given, str(error), 400)
    address = f"/topics/{segment(name)}/messages/{sent.partition}/{sent.offset}"
    return call.redirect(address, f"The message is in partition {sent.partition} at offset {sent.offset}.")


def _page(call: PageCall, given: Mapping[str, str], problem: str, status: int = 200) -> Response:
    return call.page(
        "topic_produce.html.j2",
        status,
        topic=describe(call),
        tab="produce",
        given=given,
        problem=problem,
        value_forms=VALUE_FORMS if call.settings.registry else VALUE_FORMS[:-1],
        key_forms=KEY_FORMS,
    )


def _form_of(value: Decoded) -> str:
    if value.kind in ("null", "hex"):
        return value.kind
    if "schema" in value.kind:
        return "schema"
    return "json" if value.kind == "JSON" else "text"


def _text_of(shown: Decoded, data: bytes | None) -> str:
    """Return what the form has for a key or value: of bytes that are no text, their digits."""
    if data is None:
        return ""
    if shown.kind == "JSON":
        return data.decode("utf-8", "replace")
    return bytes(data).hex(" ") if shown.kind == "hex" else shown.text


def _bytes(text: str, form: str, what: str) -> bytes | None:
    if form in ("null", "none"):
        return None
    if form == "hex":
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise ConfigError(f"{what}: not hexadecimal digits, two for each byte") from None
    text = text.replace("\r\n", "\n")
    if form == "json":
        try:
            json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{what}: not JSON: {error}") from None
    return text.encode()


def _value(call: PageCall, topic: str, given: Mapping[str, str]) -> bytes | None:
    if given["value_form"] != "schema":
        return _bytes(given["value"], given["value_form"], "value")
    registry = call.console.registry
    if registry is None:
        raise ConfigError("the console has no schema registry: start it with --registry URL")
    subject = given["subject"].strip() or f"{topic}-value"
    try:
        plain = json.loads(given["value"])
    except ValueError as error:
        raise ConfigError(f"value: not JSON: {error}") from None
    from ...schemas import AvroEncoder, JsonSchemaEncoder, ProtobufEncoder

    kinds: dict[str, Any] = {"AVRO": AvroEncoder, "JSON": JsonSchemaEncoder, "PROTOBUF": ProtobufEncoder}
    kind = registry.latest(subject, fresh=True).kind
    encoder = kinds[kind](registry, use_latest=True, subject_naming=lambda *_: subject)
    encoded: bytes | None = encoder.encode(topic, plain)
    return encoded


def _headers(text: str) -> list[tuple[str, bytes | None]]:
    """Parse lines NAME: VALUE. Raises `ConfigError`."""
    found: list[tuple[str, bytes | None]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ConfigError(f"headers: {line[:80]!r} is not NAME: VALUE")
        found.append((name.strip(), value.strip().encode()))
    return found


PAGES = (
    PageRoute("/topics/{topic}/produce", ask_for_message),
    PageRoute("/topics/{topic}/produce", send, ("POST",)),
)
