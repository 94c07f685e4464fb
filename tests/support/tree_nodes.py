"""The nodes of a coordination tree in memory."""

from collections.abc import Mapping

from barnabas.adapters.coord_memory import MemoryTree
from barnabas.core.cluster import layout


def nodes_of(tree: MemoryTree) -> Mapping[str, bytes]:
    """Return the contents of all nodes below /barnabas, without the epochs of brokers, which each start draws."""
    session = tree.session()
    found: dict[str, bytes] = {}
    above = ["/barnabas"] if session.get_many(["/barnabas"]) != [None] else []
    while above:
        path = above.pop()
        if path != layout.BROKER_EPOCHS:
            found[path] = session.get(path).data
            above += [f"{path}/{name}" for name in session.children(path)]
    session.close()
    return found
