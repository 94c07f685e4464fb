"""The reasons for which members joined and left, for the log."""

CAUSES_MAX = 5
"""The most causes that the log names for a rebalance; a large group has one for each of its members."""
_REASON_MAX = 200


class Causes:
    """The first few causes since the last `take`."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def add(self, text: str) -> None:
        if len(self._texts) < CAUSES_MAX:
            self._texts.append(text)

    def take_texts(self) -> list[str]:
        texts, self._texts = self._texts, []
        return texts


def said(reason: str | None) -> str:
    """Return the reason that a client gives for joining or leaving, as a part of a log line."""
    return f" ({reason[:_REASON_MAX]})" if reason else ""
