"""What the registry keeps, as plain values."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from hashlib import md5
from uuid import UUID

from ...ports.values import frozen
from ..formats.compatibility import Compatibility

DEFAULT_LEVEL = Compatibility.BACKWARD
VERSION_MAX = ID_MAX = 2**31 - 1
LATEST = -1


class Mode(StrEnum):
    """What may be done to a subject."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    IMPORT = "IMPORT"
    """Ids are given by whoever registers, and nothing is compared: for moving a registry."""


@frozen
class Reference:
    """A version of a subject that a schema needs, under the name by which the schema asks for it."""

    name: str
    subject: str
    version: int


@frozen
class Content:
    """What an id stands for: the same content has the same id, in whatever subjects it is."""

    format: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str = ""
    """Metadata and rules as JSON, or empty: kept and given back, since clients act on them; nothing here does."""
    rule_set: str = ""


@lru_cache(maxsize=100_000)
def guid_of(content: Content) -> str:
    """Return the id that the content has in every registry: the MD5 digest of the schema, as a UUID.

    For a schema without references, metadata and rules it is the one of Confluent's registry.
    """
    digest = md5(content.text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    parts = [str(part) for each in content.references for part in (each.name, each.subject, each.version)]
    parts += [part for part in (content.metadata, content.rule_set) if part]
    for part in parts:
        digest.update(b"\x01" + part.encode("utf-8", "surrogatepass"))
    return str(UUID(bytes=digest.digest()))


@frozen(kw_only=True)
class Version:
    """One version of a subject. `deleted`: softly; it can still be read by its id."""

    subject: str
    version: int
    id: int
    content: Content
    deleted: bool = False


@frozen(kw_only=True)
class Config:
    """What is set for a subject, or for all of them; None: not set here."""

    level: Compatibility | None = None
    normalize: bool | None = None
