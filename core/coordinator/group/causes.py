"""Why members came and went, for the log."""

CAUSES_MAX = 5
"""So many are told of a rebalance; a large group has one for each of its members."""
_REASON_MAX = 200


class Causes:
    """The first few since they were last taken."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def add(self, text: str) -> None:
        if len(self._texts) < CAUSES_MAX:
            self._texts.append(text)

    def take(self) -> list[str]:
        texts, self._texts = self._texts, []
        return texts


def said(reason: str | None) -> str:
    """What a client says of why it joins or leaves."""
    return f" ({reason[:_REASON_MAX]})" if reason else ""
