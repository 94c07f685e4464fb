"""The topic's records, and the state that they make."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.schemas.formats.compatibility import Compatibility
from barnabas.schemas.registry import server
from barnabas.schemas.registry.errors import RegistryError, incompatible
from barnabas.schemas.registry.library import Library
from barnabas.schemas.registry.records import (
    ConfigRecord,
    ModeRecord,
    Noop,
    Record,
    SchemaRecord,
    SubjectCleared,
    SubjectDeleted,
    UnknownRecord,
    decode,
    encode,
)
from barnabas.schemas.registry.server import Given, register
from barnabas.schemas.registry.state import Subjects
from barnabas.schemas.registry.words import Config, Content, Mode, Reference, Version

CONTENT = Content("AVRO", '"int"')
NEEDY = Content("JSON", "{}", (Reference("n", "s", 1),), metadata='{"tags":{}}')

FORMS: tuple[tuple[Record, str, str | None], ...] = (
    (
        SchemaRecord("s", 1, Version(subject="s", version=1, id=7, content=CONTENT)),
        '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
        '{"subject":"s","version":1,"id":7,"schema":"\\"int\\"","deleted":false}',
    ),
    (
        SchemaRecord("t", 2, Version(subject="t", version=2, id=8, content=NEEDY, deleted=True)),
        '{"keytype":"SCHEMA","subject":"t","version":2,"magic":1}',
        '{"subject":"t","version":2,"id":8,"references":[{"name":"n","subject":"s","version":1}],'
        '"metadata":{"tags":{}},"schemaType":"JSON","schema":"{}","deleted":true}',
    ),
    (SchemaRecord("s", 1, None), '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', None),
    (
        SubjectDeleted("s", 3),
        '{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}',
        '{"subject":"s","version":3}',
    ),
    (SubjectCleared("s"), '{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}', '{"subject":"s"}'),
    (
        ConfigRecord(None, Config(level=Compatibility.FULL)),
        '{"keytype":"CONFIG","subject":null,"magic":0}',
        '{"compatibilityLevel":"FULL"}',
    ),
    (ConfigRecord("s", None), '{"keytype":"CONFIG","subject":"s","magic":0}', None),
    (
        ModeRecord("s", Mode.READONLY),
        '{"keytype":"MODE","subject":"s","magic":0}',
        '{"subject":"s","mode":"READONLY"}',
    ),
    (Noop(), '{"keytype":"NOOP","magic":0}', None),
    (Noop(9), '{"keytype":"NOOP","magic":0}', '{"lastId":9}'),
)


@pytest.mark.parametrize(("record", "key", "value"), FORMS)
def test_the_forms_of_records(record: Record, key: str, value: str | None) -> None:
    data = None if value is None else value.encode()
    assert encode(record) == (key.encode(), data)
    assert decode(key.encode(), data) == record
    swapped = dict(reversed(json.loads(key).items()))  # others write members in another order
    assert decode(json.dumps(swapped).encode(), data) == record


@given(st.binary() | st.none(), st.binary() | st.none())
def test_records_that_say_nothing(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(UnknownRecord):
        decode(key, value)


MEMBERS = st.sampled_from(("subject", "version", "id", "schema", "references", "mode", "compatibilityLevel", "deleted"))
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(MEMBERS, inner, max_size=3),
    max_leaves=5,
)
KINDS = st.sampled_from(("SCHEMA", "CONFIG", "MODE", "NOOP", "DELETE_SUBJECT", "CLEAR_SUBJECT", "CONTEXT", "X"))


@given(KINDS, st.dictionaries(MEMBERS, JSON), JSON)
def test_odd_records_are_refused_or_understood_whole(kind: str, key: dict[str, Any], value: Any) -> None:
    try:
        record = decode(json.dumps({"keytype": kind, **key}).encode(), json.dumps(value).encode())
    except UnknownRecord:
        return
    subjects = Subjects()
    subjects.apply(record)
    assert decode(*encode(record)) == record


# --- whatever is done: compacted or not, the topic says the same

TEXTS = tuple(json.dumps({"type": "fixed", "name": f"F{number}", "size": 1}) for number in range(4))
SUBJECTS = ("a", "b")
STEPS = st.one_of(
    st.tuples(st.just("register"), st.sampled_from(SUBJECTS), st.sampled_from(TEXTS)),
    st.tuples(st.just("version"), st.sampled_from(SUBJECTS), st.integers(1, 4), st.booleans()),
    st.tuples(st.just("subject"), st.sampled_from(SUBJECTS), st.booleans()),
    st.tuples(st.just("mode"), st.sampled_from((*SUBJECTS, None)), st.sampled_from(list(Mode))),
)


def decide(step: tuple[Any, ...], subjects: Subjects, library: Library) -> list[Record]:
    kind, subject, *rest = step
    if kind == "register":
        return register(Given(subject=subject, content=Content("AVRO", rest[0])), subjects, library)[1]
    if kind == "version":
        return server.delete_version(subject, rest[0], subjects, permanent=rest[1])[1]
    if kind == "subject":
        return server.delete_subject(subject, subjects, permanent=rest[0])[1]
    return server.set_mode(subject, rest[0], subjects, force=True)[1]


def seen(subjects: Subjects) -> tuple[Any, ...]:
    """Return the state as readers see it."""
    return subjects.versions, subjects.contents, subjects.uses, subjects.modes, subjects.last_id


@given(st.lists(STEPS, max_size=25))
def test_compaction_changes_nothing_and_no_id_is_given_twice(steps: list[tuple[Any, ...]]) -> None:
    subjects, library, log = Subjects(), Library(), list[tuple[bytes, bytes | None]]()
    subjects.apply(ConfigRecord(None, Config(level=Compatibility.NONE)))
    log.append(encode(ConfigRecord(None, Config(level=Compatibility.NONE))))
    ids: dict[int, str] = {}
    for step in steps:
        before, frozen = seen(subjects.copy()), subjects.copy()
        try:
            records = decide(step, subjects, library)
        except RegistryError as error:
            assert str(error.code).startswith(("40", "42"))
            records = []
        for record in records:
            log.append(encode(record))
            subjects.apply(decode(*log[-1]))
        assert seen(frozen) == before  # a copy is not touched by what comes later
        for number, content in subjects.contents.items():
            assert ids.setdefault(number, content.text) == content.text
    last = {key: index for index, (key, _) in enumerate(log)}
    compacted, again = Subjects(), Subjects()
    for index, (key, value) in enumerate(log):
        again.apply(decode(key, value))
        if last[key] == index:
            compacted.apply(decode(key, value))
    assert seen(again) == seen(subjects)
    assert seen(compacted) == seen(subjects)


def test_a_version_that_needs_another_under_two_names_can_go() -> None:
    subjects = Subjects()
    subjects.apply(SchemaRecord("s", 1, Version(subject="s", version=1, id=1, content=CONTENT)))
    twice = Content("JSON", "{}", (Reference("a", "s", 1), Reference("b", "s", 1)))
    subjects.apply(SchemaRecord("t", 1, Version(subject="t", version=1, id=2, content=twice)))
    assert [each.subject for each in subjects.referrers("s", 1)] == ["t"]
    subjects.apply(SchemaRecord("t", 1, None))
    assert (subjects.referrers("s", 1), subjects.of_subject("t", deleted=True)) == ([], [])


def test_refusal_of_incompatible_schema_is_short_and_without_old_schema() -> None:
    why = [f"{{errorType:'TYPE_MISMATCH', description:'At /fields/{n}/type: {'x' * 2000}'}}" for n in range(40)]
    old = ["{oldSchemaVersion: 7}", f"{{oldSchema: '{'s' * 9000}'}}", "{compatibility: 'BACKWARD'}"]
    text = str(incompatible("orders-value", [*why, *old]))
    assert len(text) < 2000
    assert "more: '35 more differences'" in text
    assert text.endswith("{oldSchemaVersion: 7}, {compatibility: 'BACKWARD'}]")
    one = str(incompatible("orders-value", ["{errorType:'NAME_MISMATCH', description:'At /name: x'}", *old]))
    assert "[{errorType:'NAME_MISMATCH', description:'At /name: x'}, {oldSchemaVersion: 7}, " in one
