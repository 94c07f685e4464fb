"""Flat lists of partitions, in groups: the wire has partitions within topics."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

_TOPIC = attrgetter("topic")


def by_topic(items: Sequence[Any]) -> Mapping[str, Sequence[Any]]:
    """Return the items of each topic, topics in the order in which they first appear."""
    return grouped(items, _TOPIC)


def grouped(items: Sequence[Any], key: Callable[[Any], Any]) -> Mapping[Any, Sequence[Any]]:
    """Return the items of each key, keys in the order in which they first appear."""
    if len(items) == 1:
        return {key(items[0]): items}
    groups: dict[Any, list[Any]] = {}
    for item in items:
        name = key(item)
        found = groups.get(name)
        if found is None:
            groups[name] = [item]
        else:
            found.append(item)
    return groups
