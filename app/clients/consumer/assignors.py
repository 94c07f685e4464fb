"""The rebalance strategies that a consumer is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....ports.errors import ConfigError

if TYPE_CHECKING:
    from ....core.client.group.assignor import Assignor
    from ....plugins.host import PluginHost
    from ..shared.settings import ConsumerSettings


def assignors_of(chosen: ConsumerSettings, host: PluginHost) -> list[Assignor]:
    """By their names, and objects as they are. Raises `ConfigError`."""
    found: list[Assignor] = []
    for each in chosen.partition_assignment_strategy:
        if not isinstance(each, str):
            missing = [name for name in ("name", "cooperative", "user_data", "assign") if not hasattr(each, name)]
            if missing:
                raise ConfigError(f"partition.assignment.strategy: {each!r:.100} has no {missing[0]}, see Assignor")
        found.append(host.rebalance_strategy(each) if isinstance(each, str) else each)
    return found
