"""Producer ids that nobody has: this broker takes a block of them, and gives them out one by one."""

from collections.abc import Callable
from functools import partial

from ....core.cluster.producer_ids import claim_block
from ....ports.errors import BarnabasError
from ..state.broker_state import BrokerState


class ProducerIds:
    """Owner thread only."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._ids = range(0)
        self._waiting: list[Callable[[bool], None]] = []

    def are_given_out(self, producer_id: int) -> bool:
        """True for an id that some producer has got, of this broker or another one; to be asked by `when_some`."""
        return 0 <= producer_id < self._ids.start

    def next(self) -> int:
        """A fresh one; there must be some."""
        fresh, self._ids = self._ids[0], self._ids[1:]
        return fresh

    def take(self, told: Callable[[int | None], None]) -> None:
        """`told` gets a fresh one, at once or later; None: there is none to be had now."""
        self.when_some(lambda there_are: told(self.next() if there_are else None))

    def when_some(self, told: Callable[[bool], None]) -> None:
        """Call `told` when there are some, with True, at once or later; False: there are none to be had now."""
        if self._ids:
            told(True)
            return
        self._waiting.append(told)
        if len(self._waiting) == 1:
            self._claim()

    def _claim(self) -> None:
        """Take a block of ids, for all who wait; those who come meanwhile wait, too."""
        state = self._state
        make = partial(claim_block, state.registry.coordination, state.node_id)
        state.changes.submit("taking a block of producer ids", make, self._claimed)

    def _claimed(self, block: range | BarnabasError) -> None:
        waiting, self._waiting = self._waiting, []
        if isinstance(block, BarnabasError):
            for told in waiting:
                told(False)
            return
        self._ids = block
        for told in waiting:
            self.when_some(told)
