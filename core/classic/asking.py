"""One broker, asked one thing after the other: what a simple consumer does (facts A8)."""

from collections.abc import Callable
from typing import Any

from ...ports.broker_api import BrokerLink, Caller, Request
from ...ports.errors import ClosedError
from ...ports.transport import Address, TransportError

Connect = Callable[[Address, Callable[[BrokerLink | TransportError], None]], None]
Answer = Callable[[Any], None]

_CALLER = Caller()


class OneBroker:
    """Keeps a link to the broker; after an I/O error it connects again and asks once more. Owner thread only."""

    def __init__(self, address: Address, connect: Connect) -> None:
        self._address = address
        self._connect = connect
        self._link: BrokerLink | None = None
        self._opening: list[tuple[Request[Any], Answer, bool]] = []
        self._closed = False

    def ask(self, request: Request[Any], answer: Answer) -> None:
        """`answer` gets the result, or the `BarnabasError` for which there is none."""
        self._ask(request, answer, again=True)

    def close(self) -> None:
        """Hang up; what is under way fails."""
        self._closed = True
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _ask(self, request: Request[Any], answer: Answer, *, again: bool) -> None:
        if self._closed:
            answer(ClosedError("the consumer is closed"))
        elif self._link is not None:
            self._submit(self._link, request, answer, again=again)
        else:
            self._opening.append((request, answer, again))
            if len(self._opening) == 1:
                self._connect(self._address, self._opened)

    def _opened(self, outcome: BrokerLink | TransportError) -> None:
        waiting, self._opening = self._opening, []
        if not isinstance(outcome, TransportError):
            if self._closed:
                outcome.close()
            else:
                self._link = outcome
        for request, answer, again in waiting:
            if not isinstance(outcome, TransportError):
                self._ask(request, answer, again=again)
            elif again:
                self._ask(request, answer, again=False)
            else:
                answer(outcome)

    def _submit(self, link: BrokerLink, request: Request[Any], answer: Answer, *, again: bool) -> None:
        def reply(result: Any) -> None:
            if isinstance(result, TransportError | ClosedError) and self._link is link:
                self._link = None
                link.close()
            if again and isinstance(result, TransportError) and not self._closed:
                self._ask(request, answer, again=False)
            else:
                answer(result)

        link.submit(request, _CALLER, reply)
