"""The coordination service of a world: ZooKeeper's or etcd's part, with what happens to it."""

from collections.abc import Callable, Iterable, Sequence

from ..adapters.coord_memory import MemoryTree
from ..core.cluster.metadata_listener import ROOT
from .machine import Machine
from .network import Who, node_name


class CoordinationService:
    """Faults of the coordination service. The tree is `World.tree`; `SimulatedNetwork.partition` cuts a machine off
    from it.
    """

    def __init__(
        self, tree: MemoryTree, machines: Callable[[], Iterable[Machine]], set_down: Callable[[bool], None]
    ) -> None:
        self._tree = tree
        self._machines = machines
        self._set_down = set_down
        self._away: list[Machine] = []

    def expire(self, who: Who) -> None:
        """Let the service end the sessions of this machine, which keeps running and is notified soon."""
        for machine in self._machines():
            if machine.name == node_name(who):
                machine.expire()

    def go_down(self, *, sessions_expire: bool = False) -> None:
        """Make the service unreachable for all. Sessions do not end meanwhile, as the service does not count the time,
        unless `sessions_expire`.
        """
        self._set_down(True)
        for machine in self._machines():
            self._away.append(machine)
            for session in machine.sessions:
                session.leave(may_expire=sessions_expire)

    def come_up(self) -> None:
        """Make the service reachable again."""
        self._set_down(False)
        away, self._away = self._away, []
        for machine in away:
            for session in machine.sessions:
                if session.is_away:
                    session.come_back()

    def backup(self) -> Sequence[tuple[str, bytes, int]]:
        """Path, data and version of every node of the current generation that no session owns, as they are now."""
        nodes, paths = self._tree.nodes, [ROOT]
        for path in paths:
            paths += [f"{path}/{name}" for name in nodes.children(path)]
        found = [(path, nodes.get(path)) for path in paths]
        return [(path, node.data, node.version) for path, node in found if not node.ephemeral]

    def restore(self, backup: Sequence[tuple[str, bytes, int]]) -> None:
        """The tree is what it was at that backup. Stop all brokers before, and wait for the end of their sessions."""
        for path, _, _ in sorted(self.backup(), reverse=True):
            self._tree.change(self._tree.nodes.plan_delete(path, None))
        self._tree.nodes.restore(backup)
