"""A sample of an API."""

from typing import Any

from attrs import evolve, frozen, has

ID_A, ID_B = bytes(range(16)), bytes(range(16, 32))
NO_ID = bytes(16)
LONG_NAME = "n" * 249
UNSET = -0x8000_0000
NO_LEADER = {"leader_id": -1, "leader_epoch": -1}


@frozen
class Sample:
    """A request and a result of one API, each with the tree that it is on the wire.

    `older`: another sample for the versions up to `older_until`, which cannot express this one.
    """

    request: Any
    request_wire: dict[str, Any]
    result: Any
    result_wire: dict[str, Any]
    older: "Sample | None" = None
    older_until: int = -1

    def at(self, version: int) -> "Sample":
        """Return the sample for a version."""
        return self if self.older is None or version > self.older_until else self.older.at(version)


IDS = {"clicks": ID_A, "views": ID_B, LONG_NAME: ID_B}


def by_id(value: Any) -> Any:
    """Return a value, or the tree of one, in versions in which topics go by their ids."""
    if isinstance(value, dict):
        named = {"topic_id": IDS[value["name"]]} if value.get("name") in IDS else {}
        return {**{key: by_id(item) for key, item in value.items() if not (named and key == "name")}, **named}
    if hasattr(value, "_replace"):
        return value._replace(topic=IDS[value.topic].hex())
    if isinstance(value, list | tuple):
        return [by_id(item) for item in value]
    if not has(type(value)):
        return value
    parts = {name: getattr(value, name) for name in ("partitions", "groups") if getattr(value, name, None) is not None}
    changed = evolve(value, **{name: by_id(items) for name, items in parts.items()})
    return evolve(changed, topic=IDS[value.topic].hex()) if hasattr(value, "topic") else changed


def newer_by_id(sample: Sample, *, older_until: int, **request: Any) -> Sample:
    """Return the sample, with ids for versions after `older_until`; `request`: its further fields then."""
    return Sample(
        evolve(by_id(sample.request), **request),
        by_id(sample.request_wire),
        by_id(sample.result),
        by_id(sample.result_wire),
        older=sample,
        older_until=older_until,
    )
