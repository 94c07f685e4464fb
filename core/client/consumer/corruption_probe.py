"""The search for the next offset at which a log can be read again."""


class CorruptionProbe:
    """Asks at offsets twice as far away each time, then halves what lies between: about 2 log2(n) questions at most.

    For damage that does not show where it ends. A broker finds batches by its index, so that from some offset on it
    finds again what lies behind.
    """

    def __init__(self, start: int, end: int, reason: str) -> None:
        """`start` cannot be read; `end` is the end of the log (exclusive), or more."""
        self.start = start
        self.reason = reason
        self._below = start
        self._above = self._behind = end
        self._step = 1

    def limit(self, end: int) -> None:
        """The log ends there, at the latest."""
        if end < self._above:
            self._above = max(end, self.start + 1)
            self._behind = self._above
            self._step = 0

    @property
    def found(self) -> int | None:
        """Where to go on (the end: nothing behind can be read); None while there is something to ask."""
        return self._behind if self._above - self._below <= 1 else None

    @property
    def offset(self) -> int:
        """Where to ask next."""
        if self._step:
            return min(self._below + self._step, self._above - 1)
        return (self._below + self._above) // 2

    def told(self, offset: int, base_offset: int | None) -> None:
        """What is read from `offset` on begins at `base_offset`; None: nothing there is to be believed."""
        if base_offset is None:
            self._below = max(self._below, min(offset, self._above - 1))
            self._step *= 2
        else:
            self._above = min(offset, max(self._below + 1, base_offset))
            self._behind = max(self._above, base_offset)
            self._step = 0
