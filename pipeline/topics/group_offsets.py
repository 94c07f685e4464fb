"""Commit the progress of a load or a stream to a consumer group, so that tools that show lag see it.

The offsets that count are those of the table, or of the stream's checkpoint: the group's ones are never read back, and
a commit that fails stops nothing.
"""

import time
from collections.abc import Callable, Mapping

from attrs import define, field

from ...app.clients.admin.admin import Admin
from ...ports.errors import BarnabasError, ConfigError
from .model import ClusterPartition, Where

_TIMEOUT = "default.api.timeout.ms"
TIMEOUT_MS = 10_000
"""The longest time for which a broker that does not answer holds up a load or a stream."""
RETRY_S = 30.0


def check_group(group: str | None, where: Where) -> None:
    """Raise `ConfigError` for a group to which no offsets can be committed."""
    if group is not None and not group.strip():
        raise ConfigError("name the consumer group to which offsets are committed")
    if group is not None and where.classic:
        raise ConfigError(f"group {group!r}: the brokers of a classic cluster keep no offsets of groups")


def commit_to_group(
    bootstrap: str, common: Mapping[str, str], group: str, offsets: Mapping[ClusterPartition, int]
) -> str | None:
    """Commit the next offset per partition; returns why it did not work, if so.

    `common` has settings that every client knows, by their dotted names. A group with members refuses: their own
    offsets would be overwritten.
    """
    try:
        with Admin(bootstrap, config={_TIMEOUT: str(TIMEOUT_MS), **common}) as admin:
            admin.alter_group_offsets(group, {(tp.topic, tp.partition): n for tp, n in offsets.items()})
    except BarnabasError as error:
        return str(error)
    return None


@define
class GroupProgress:
    """The offsets that a stream has committed to its group. Spark calls `DataSourceStreamReader.commit` for a batch
    only when it begins the next one; but the offset from which it asks for more is that of a batch that is done.
    """

    commit: Callable[[Mapping[ClusterPartition, int]], str | None]
    report: Callable[[str], None]
    _initial: Mapping[ClusterPartition, int] | None = None
    _committed: dict[ClusterPartition, int] = field(factory=dict)
    _not_before: float = 0.0

    def set_initial_offsets(self, offsets: Mapping[ClusterPartition, int]) -> None:
        """Note the offsets at which the stream begins: they are not committed, as nothing is read yet."""
        if self._initial is None:
            self._initial = dict(offsets)

    def reached(self, offsets: Mapping[ClusterPartition, int]) -> None:
        """Everything before these offsets is processed. After a failure there is a pause before the next try."""
        new = {tp: offset for tp, offset in offsets.items() if self._committed.get(tp) != offset}
        if not new or offsets == self._initial or time.monotonic() < self._not_before:
            return
        error = self.commit(new)
        if error is None:
            self._committed.update(new)
        else:
            self._not_before = time.monotonic() + RETRY_S
            self.report(error)
