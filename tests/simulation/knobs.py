"""Sizes and times inside the code that a seed sets to rare values, so that what happens at a limit happens often.

No setting reaches them, since no user has a reason to change them (FoundationDB calls such values knobs). All brokers
of a story have the same ones.
"""

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from attrs import define

from barnabas.core.cluster import layout, reassignment, registry
from barnabas.core.coordinator import log, log_loader, runtime
from barnabas.core.coordinator.group import coordinator as groups_describing
from barnabas.core.coordinator.group import positions
from barnabas.core.coordinator.transaction import coordinator, markers
from barnabas.core.log.compaction import offset_map
from barnabas.core.log.manager import creation, data_folder
from barnabas.core.log.producers import replay
from barnabas.core.log.segment import offset_index, segment_list, transaction_index
from barnabas.core.replica import alter_partition_manager
from barnabas.core.tree import tree
from barnabas.ports.entropy import Entropy


@define(frozen=True)
class Knob:
    """A constant of a module, and the values that a seed may give it."""

    module: ModuleType
    name: str
    values: tuple[Any, ...]


KNOBS = (
    Knob(layout, "PARTITIONS_PER_NODE", (1, 2)),
    Knob(registry, "COMMIT_BYTES", (1, 500)),
    Knob(registry, "STATES_AT_A_TIME", (1, 3)),
    Knob(registry, "TOPICS_AT_A_TIME", (1,)),
    Knob(registry, "ATTEMPTS", (2,)),
    Knob(registry, "EARLY_MAX", (1,)),
    Knob(alter_partition_manager, "RETRY_MS", (20.0, 2000.0)),
    Knob(log, "_TOGETHER_BYTES", (200,)),
    Knob(log_loader, "_RETRY_MS", (50.0,)),
    Knob(runtime, "_BATCH_BYTES", (200,)),
    Knob(groups_describing, "_GROUPS_PER_STEP", (1,)),
    Knob(positions, "_POSITIONS_PER_STEP", (1,)),
    Knob(coordinator, "_IDS_PER_STEP", (1,)),
    Knob(markers, "_AT_ONCE", (1,)),
    Knob(markers, "_PARTITIONS_MAX", (1,)),
    Knob(markers, "_ABSENT_MS", (200.0,)),
    Knob(offset_map, "_PENDING_MAX", (2,)),
    Knob(creation, "PART_MIN", (1,)),
    Knob(data_folder, "REMOVE_AGAIN_MS", (300.0,)),
    Knob(replay, "LOOK_BACK_ENTRIES", (1,)),
    Knob(offset_index, "_TAIL_ENTRIES", (2,)),
    Knob(offset_index, "_BLOCK_ENTRIES", (2,)),
    Knob(segment_list, "_HEADERS_PER_STEP", (1,)),
    Knob(transaction_index, "_BLOCK_ENTRIES", (1, 2)),
    Knob(transaction_index, "_CACHED_BLOCKS_MAX", (1,)),
)
LIMITS = (Knob(tree, "DATA_BYTES_MAX", ()), Knob(reassignment, "STATES_NODES_AT_A_TIME", ()))
"""A story may lower these, and no seed does it by chance."""
_DEFAULTS = {(each.module, each.name): getattr(each.module, each.name) for each in (*KNOBS, *LIMITS)}


def some_knobs(entropy: Entropy) -> dict[str, Any]:
    """Return rare values for some knobs, by `module.name`. One of three seeds has none."""
    if entropy.below(3) == 0:
        return {}
    chosen = [each for each in KNOBS if entropy.below(4) == 0]
    return {_title(each.module, each.name): each.values[entropy.below(len(each.values))] for each in chosen}


def set_knobs(values: dict[str, Any]) -> None:
    """Give these knobs their values, and all others their usual ones."""
    known = {_title(*key): key for key in _DEFAULTS}
    unknown = values.keys() - known.keys()
    assert not unknown, f"no such knobs: {sorted(unknown)}"
    for (module, name), usual in _DEFAULTS.items():
        setattr(module, name, values.get(_title(module, name), usual))


def names_of(knobs: Iterable[Knob] = KNOBS) -> list[str]:
    """Return the names of knobs, as rare states have them."""
    return [_title(each.module, each.name) for each in knobs]


def _title(module: ModuleType, name: str) -> str:
    return f"{module.__name__.partition('.core.')[2]}.{name.lstrip('_')}"
