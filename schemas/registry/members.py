"""JSON members of schemas, versions and settings, in responses of the API and in records of the topic."""

from __future__ import annotations

import json
from typing import Any

from ..formats.parsed import AVRO
from .words import Config, Content, Version


def content_members(content: Content, text: str | None = None) -> dict[str, Any]:
    """Return the members of a content. Default types and empty references are left out, as in Confluent's registry.

    `text` replaces the stored one.
    """
    out: dict[str, Any] = {}
    if content.references:
        out["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version} for each in content.references
        ]
    if content.metadata:
        out["metadata"] = json.loads(content.metadata)
    if content.rule_set:
        out["ruleSet"] = json.loads(content.rule_set)
    if content.format != AVRO:
        out["schemaType"] = content.format
    return {**out, "schema": content.text if text is None else text}


def version_members(version: Version, text: str | None = None) -> dict[str, Any]:
    """Return the members of a version of a subject with its schema."""
    place = {"subject": version.subject, "version": version.version, "id": version.id}
    deleted = {"deleted": True} if version.deleted else {}
    return {**place, **content_members(version.content, text), **deleted}


def config_members(config: Config, level_name: str) -> dict[str, Any]:
    """Return the members of a configuration; responses and records have another name of the level than requests."""
    out: dict[str, Any] = {} if config.level is None else {level_name: config.level.value}
    return out if config.normalize is None else {**out, "normalize": config.normalize}
