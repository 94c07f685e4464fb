"""Schemas: the subjects of a registry, versions with their differences, the check of a schema, registration."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.responses import Response

from ... import BarnabasError, ConfigError
from ...schemas.client import RegisteredSchema, RegistryClient
from ..application import PageCall, PageRoute
from ..paging import PageOfRows
from ..rendering import segment

_KINDS = ("AVRO", "JSON", "PROTOBUF")
_DIFF_LINES = 4


def list_subjects(call: PageCall) -> Response:
    """Show the subjects of the registry."""
    if call.console.registry is None:
        call.connection  # noqa: B018  a user who has not signed in does so first
        return call.page("subjects.html.j2", rows=None, wanted="")
    wanted = call.query("q").strip()
    found = [name for name in _registry(call).subjects() if wanted.lower() in name.lower()]
    return call.page("subjects.html.j2", rows=PageOfRows(found, call.number("page", 1, least=1)), wanted=wanted)


def show_subject(call: PageCall) -> Response:
    """Show one subject: a version, what it changes, and the check of another schema."""
    return _subject_page(call, call.query("id"), None, "", "AVRO", 200)


def check_schema(call: PageCall) -> Response:
    """Say whether a schema is compatible with the subject, or register it as the newest version."""
    subject, text, kind = call.form.get("id", ""), call.form.get("text", ""), call.form.get("kind", "AVRO")
    kind = kind if kind in _KINDS else "AVRO"
    registry = _registry(call)
    try:
        if call.form.get("register"):
            with call.change(f"register a schema of subject {subject}"):
                registry.register(subject, kind, text)
            return call.redirect(f"/subject?id={segment(subject)}", f"Subject {subject} has the schema now.")
        problems = registry.check(subject, kind, text)
    except BarnabasError as error:
        return _subject_page(call, subject, [str(error)], text, kind, 400)
    return _subject_page(call, subject, problems, text, kind, 200)


def _subject_page(
    call: PageCall, subject: str, problems: Sequence[str] | None, text: str, kind: str, status: int
) -> Response:
    registry = _registry(call)
    if not subject:
        raise HTTPException(404, "The address names no subject.")
    versions = registry.versions(subject)
    number = call.number("version", versions[-1])
    if number not in versions:
        raise HTTPException(404, f"Subject {subject} has no version {number}.")
    shown = registry.version(subject, number)
    earlier = [each for each in versions if each < number]
    against = call.number("with", earlier[-1] if earlier else 0)
    other = registry.version(subject, against) if against in versions and against != number else None
    return call.page(
        "subject.html.j2",
        status,
        subject=subject,
        versions=versions,
        schema=shown,
        text=pretty(shown),
        other=other,
        lines=[] if other is None else difference(pretty(other), pretty(shown)),
        level=registry.level(subject),
        problems=problems,
        given=text or pretty(shown),
        given_kind=kind if text else shown.kind,
        kinds=_KINDS,
    )


def _registry(call: PageCall) -> RegistryClient:
    """Return the client of the registry, for a user who has signed in. Raises `ConfigError`."""
    call.connection  # noqa: B018  the registry is asked with the rights of the console
    registry = call.console.registry
    if registry is None:
        raise ConfigError("the console has no schema registry: start it with --registry URL")
    return registry


def pretty(schema: RegisteredSchema) -> str:
    """Return the text of a schema with a line for each part."""
    if schema.kind == "PROTOBUF":
        return schema.text
    try:
        return json.dumps(json.loads(schema.text), indent=2, ensure_ascii=False)
    except ValueError:
        return schema.text


def difference(before: str, after: str) -> list[tuple[str, str]]:
    """Return lines with "added", "removed", "same", or "gap" where equal lines are left out."""
    lines: list[tuple[str, str]] = []
    kinds = {"+": "added", "-": "removed", " ": "same", "@": "gap"}
    found = difflib.unified_diff(before.splitlines(), after.splitlines(), n=_DIFF_LINES, lineterm="")
    for number, line in enumerate(found):
        if number >= 2:
            lines.append((kinds.get(line[:1], "same"), "" if line[:1] == "@" else line[1:]))
    return lines


PAGES = (
    PageRoute("/schemas", list_subjects),
    PageRoute("/subject", show_subject),
    PageRoute("/subject", check_schema, ("POST",)),
)
