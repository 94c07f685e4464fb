"""Reading and writing the registries of brokers and topics (facts A7).

Everything here may wait for the network: it belongs off the reactor (`Scheduler.offload`) when the coordination says
that it is `blocking`. A node of another process that makes no sense is reported with its path, and skipped.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from ....ports.coordination import BadVersion, Coordination, CoordinationError, Node, NodeExists, NoNode
from ....ports.errors import ConfigError
from ...cluster import brokers
from . import layout
from .layout import ClassicBroker

Report = Callable[[str], None]

PARTITIONS_MAX = 100_000
"""A partition count above it is taken for garbage."""


class NodeTaken(CoordinationError):
    """An ephemeral node of another process stands where ours should. `content` is its data."""

    def __init__(self, path: str, content: bytes) -> None:
        super().__init__(f"{path} is taken: it says {content[:200]!r}")
        self.path = path
        self.content = content


def create_ephemeral(coordination: Coordination, path: str, data: bytes) -> None:
    """Create our ephemeral node, of this session.

    One with the same data is made again: we made it, and the answer was lost, or an earlier life of ours left it, with
    whose session it would go. (0.7 takes it for its own.) Raises `NodeTaken`, `CoordinationError`.
    """
    while True:
        try:
            coordination.create(path, data, ephemeral=True)
            return
        except NodeExists:
            found = get(coordination, path)
        if found is not None and found.data != data:
            raise NodeTaken(path, found.data)
        delete_own(coordination, path, data)


def delete_own(coordination: Coordination, path: str, data: bytes) -> None:
    """Remove the node if it says this; what is missing or says anything else is left alone."""
    while True:
        found = get(coordination, path)
        if found is None or found.data != data:
            return
        try:
            coordination.delete(path, version=found.version)
            return
        except NoNode:
            return
        except BadVersion:
            continue  # it was written to in between: look who has it now


def read_brokers(coordination: Coordination, report: Report) -> dict[int, ClassicBroker]:
    """Return the live brokers by id."""
    found = {}
    for name, path, data in nodes_below(coordination, layout.BROKER_IDS, report):
        try:
            broker = layout.decode_broker(name, data)
        except ValueError as error:
            report(f"skipped {path}, which does not describe a broker: {error}")
            continue
        found[broker.broker_id] = broker
    return found


def read_topic_names(coordination: Coordination, report: Report | None = None) -> list[str]:
    """Return the names of all topics that some broker has, or had, sorted. Names that no path can hold are left out."""
    return children(coordination, layout.BROKER_TOPICS, report)


def read_topic(coordination: Coordination, topic: str, report: Report) -> dict[int, int]:
    """Broker id → its number of partitions of the topic; empty when no live broker has it."""
    counts = {}
    for name, path, data in nodes_below(coordination, layout.topic_path(topic), report):
        try:
            broker_id = layout.decode_name(name, "broker id")
            counts[broker_id] = layout.decode_number(data, "partition count", PARTITIONS_MAX)
        except ValueError as error:
            report(f"skipped {path}, which is not a number of partitions: {error}")
    return counts


def read_topics(coordination: Coordination, topics: Iterable[str], report: Report) -> Mapping[str, dict[int, int]]:
    """`read_topic` of several."""
    return {topic: read_topic(coordination, topic, report) for topic in topics}


def nodes_below(coordination: Coordination, path: str, report: Report) -> Iterator[tuple[str, str, bytes]]:
    """Name, path and content of each child, sorted by name; none when the node is missing."""
    for name in children(coordination, path, report):
        node = get(coordination, f"{path}/{name}")
        if node is not None:
            yield name, f"{path}/{name}", node.data


def children(coordination: Coordination, path: str, report: Report | None = None) -> list[str]:
    """Return the names of a node's children, sorted; none when it is missing.

    Other writers may make nodes of names that the coordination port does not take: they are left out, and reported.
    """
    return [name for name in brokers.children(coordination, path) if _usable(path, name, report)]


def _usable(path: str, name: str, report: Report | None) -> bool:
    try:
        layout.check_name("node name", name)
    except ConfigError as error:
        if report is not None:
            report(f"skipped {path}/{name!r}: {error}")
        return False
    return True


def get(coordination: Coordination, path: str) -> Node | None:
    """Return the node, or None when it is missing."""
    try:
        return coordination.get(path)
    except NoNode:
        return None
