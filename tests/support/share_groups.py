"""Administration of share groups through `Admin`, for tests."""

from collections.abc import Mapping

from barnabas import Admin
from barnabas.ports.broker_api.configs import ResourceKind


def read_from_the_beginning(bootstrap: str, *groups: str, settings: Mapping[str, str | None] | None = None) -> None:
    """Let groups that begin read what is there; `settings` are others of theirs."""
    with Admin(bootstrap) as admin:
        for group in groups:
            admin.alter_configs(ResourceKind.GROUP, group, {"share.auto.offset.reset": "earliest", **(settings or {})})


def start_offsets(bootstrap: str, group: str) -> dict[int, int]:
    """Return the start offsets by partition, of a group that reads one topic; those that are not known are left out."""
    with Admin(bootstrap) as admin:
        found = admin.share_group_offsets(group)
    return {tp.partition: each.offset for tp, each in found.items() if each.offset is not None and each.offset >= 0}
