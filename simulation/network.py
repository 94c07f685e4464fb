"""The network of a world, and the pairs of nodes that are disconnected in it."""

from collections.abc import Callable
from typing import Any

from ..adapters.transport_memory import MemoryConnection, MemoryNetwork

COORDINATION = "coordination"
"""The node of the coordination service."""
Who = int | str
"""A broker by its id, any other machine by its name."""


def node_name(who: Who) -> str:
    """Return the name of a machine in the network."""
    return f"broker-{who}" if isinstance(who, int) else who


class SimulatedNetwork(MemoryNetwork):
    """Machines are named by broker id or by name; `COORDINATION` is one, too."""

    cuts_changed: Callable[[], None] = staticmethod(lambda: None)
    """Called (settable) when the cuts change: a machine cannot reach another one, or can again."""

    def __init__(self, *arguments: Any) -> None:
        """Take what `MemoryNetwork` takes."""
        super().__init__(*arguments)
        self._delayed: dict[MemoryConnection, None] = {}
        """The receiving ends of connections over which nothing arrives for now."""

    def partition(self, one: Who, *others: Who, one_way: bool = False) -> None:
        """Let nothing pass between `one` and the others; `one_way`: from it to them. The machines are not notified."""
        for other in others:
            self.cut(node_name(one), node_name(other), one_way=one_way)
        self.cuts_changed()

    def heal(self, one: Who | None = None, other: Who | None = None) -> None:
        """Undo `partition`: of these two; of `one` and all others; of all when none is named."""
        for ways in list(self._cuts):
            if {node_name(who) for who in (one, other) if who is not None} <= set(ways):
                super().heal(*ways)
        self.cuts_changed()

    def heal_all(self) -> None:
        """Let all machines reach each other again."""
        self.heal()

    def delay_requests(self, connection: MemoryConnection) -> Callable[[], None]:
        """Let nothing arrive at this end of a connection until the returned function is called.

        So does TCP after an outage: a connection waits for its next retransmission while others work. The sender may
        time out, close the connection and ask again, or be killed: what it had sent arrives all the same.
        """
        self._delayed[connection] = None

        def end() -> None:
            self._delayed.pop(connection, None)
            connection.ask_pump()

        return end

    def connections_to(self, who: Who) -> list[tuple[str, MemoryConnection]]:
        """Return the ends of connections that this machine has accepted, each with the name of the sender."""
        name = node_name(who)
        return [
            (_sender_to(each), each) for each in self.connections if each.node == name and each.local in self.listeners
        ]

    def is_cut(self, connection: MemoryConnection) -> bool:
        return (bool(self._delayed) and connection in self._delayed) or super().is_cut(connection)

    def crash(self, node: str) -> None:
        """End the process of a node: its ports are closed and its connections reset. What it had sent over a delayed
        connection is with its operating system, and arrives."""
        delayed = [each for each in self._delayed if _sender_to(each) == node and each in self.connections]
        for each in delayed:
            if each.other is not None:
                each.other.close()
            del self.connections[each]
        super().crash(node)
        self.connections.update(dict.fromkeys(delayed))

    def meets(self, one: Who, other: Who) -> bool:
        """Return True if each of them reaches the other."""
        names = node_name(one), node_name(other)
        return self.passes(*names) and self.passes(*reversed(names))


def _sender_to(connection: MemoryConnection) -> str:
    return "" if connection.other is None else connection.other.node
