"""Producer ids: this broker claims a block of unused ones, and assigns them one by one."""

from collections.abc import Callable
from functools import partial

from ....core.cluster.producer_ids import claim_block
from ....ports.errors import BarnabasError
from ..state.broker_state import BrokerState


class ProducerIds:
    """Assigns producer ids of claimed blocks. Owner thread only."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._ids = range(0)
        self._waiting: list[Callable[[bool], None]] = []

    def are_given_out(self, producer_id: int) -> bool:
        """Return True for an id that some broker has assigned to a producer; call it within `when_some`."""
        return 0 <= producer_id < self._ids.start

    def next(self) -> int:
        """Return an unused id; there must be one left."""
        fresh, self._ids = self._ids[0], self._ids[1:]
        return fresh

    def generate_producer_id(self, callback: Callable[[int | None], None]) -> None:
        """Call back with an unused id, at once or later; None: none is available now."""
        self.when_some(lambda there_are: callback(self.next() if there_are else None))

    def when_some(self, callback: Callable[[bool], None]) -> None:
        """Call back with True when an id is left, at once or later; False: none is available now."""
        if self._ids:
            callback(True)
            return
        self._waiting.append(callback)
        if len(self._waiting) == 1:
            self._claim()

    def _claim(self) -> None:
        """Claim a block of ids for all waiting requests, and for those that come meanwhile."""
        state = self._state
        make = partial(claim_block, state.registry.coordination, state.node_id)
        state.changes.submit("taking a block of producer ids", make, self._claimed)

    def _claimed(self, block: range | BarnabasError) -> None:
        waiting, self._waiting = self._waiting, []
        if isinstance(block, BarnabasError):
            for callback in waiting:
                callback(False)
            return
        self._ids = block
        for callback in waiting:
            self.when_some(callback)
