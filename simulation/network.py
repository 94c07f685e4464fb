"""The network of a world, and who does not reach whom in it."""

from collections.abc import Callable

from ..adapters.transport_memory import MemoryNetwork

COORDINATION = "coordination"
"""The node of the coordination service."""
Who = int | str
"""A broker by its id, any other machine by its name."""


def node_name(who: Who) -> str:
    """The name of a machine in the network."""
    return f"broker-{who}" if isinstance(who, int) else who


class SimulatedNetwork(MemoryNetwork):
    """Machines are named by broker id or by name; `COORDINATION` is one, too."""

    cuts_changed: Callable[[], None] = staticmethod(lambda: None)
    """Called (settable) when somebody does not reach somebody else any more, or does again."""

    def partition(self, one: Who, *others: Who, one_way: bool = False) -> None:
        """Nothing passes any more between `one` and the others; `one_way`: from it to them. Nobody is told of it."""
        for other in others:
            self.cut(node_name(one), node_name(other), one_way=one_way)
        self.cuts_changed()

    def heal(self, one: Who | None = None, other: Who | None = None) -> None:
        """Undo `partition`: of these two; of `one` and everybody; of all when nobody is named."""
        for ways in list(self._cuts):
            if {node_name(who) for who in (one, other) if who is not None} <= set(ways):
                super().heal(*ways)
        self.cuts_changed()

    def heal_all(self) -> None:
        """Everybody reaches everybody again."""
        self.heal()

    def meets(self, one: Who, other: Who) -> bool:
        """True if each of them reaches the other."""
        names = node_name(one), node_name(other)
        return self.passes(*names) and self.passes(*reversed(names))
