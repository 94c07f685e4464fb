"""Consume-transform-produce in transactions on a cluster under faults.

The load and its verdict are those of `kills`; here several transformers run, and brokers and coordinators come and go.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from chaos.history import History
from confluent_kafka import KafkaException
from kills.run import everything, positions, watermarks
from kills.verdict import aborted_reads, lost_or_doubled, offsets_apart, partial_transactions
from kills.work import Source, Transformer, Witness

PATIENCE_S = 180.0
"""Longer than any fault, and than the clients' own delivery timeouts."""


class TransactionalLoad:
    """A producer, transformers and a read_committed reader. Start it on a healthy cluster that has both topics."""

    def __init__(self, bootstrap: str, *, seed: int, transformers: int = 2, per_second: float = 50) -> None:
        self._bootstrap = bootstrap
        self._source = Source(bootstrap, per_second)
        self._transformers = [Transformer(bootstrap, f"transformer-{n}", seed + n) for n in range(transformers)]
        self._witness = Witness(bootstrap)

    @property
    def committed(self) -> int:
        return sum(each.committed for each in self._transformers)

    def close(self) -> None:
        """Stop the threads without waiting for the end of the work."""
        for each in (self._source, *self._transformers, self._witness):
            each.stopping.set()

    def finish(self, history: History) -> dict[str, Any]:
        """Let the load come to its end on a healthy cluster, note every anomaly, and return figures."""
        try:
            self._source.stop()
        except (RuntimeError, TimeoutError) as error:
            history.transactional.append(("client-stuck", f"{error}: {error.__cause__}"))
        ends = watermarks(self._bootstrap)
        try:
            _wait_until(lambda: positions(self._bootstrap) == ends)
        except TimeoutError:  # `offsets_apart` says where the group stands
            doing = ", ".join(f"{each.name}: {each.doing}" for each in self._transformers)
            history.transactional.append(("offsets-apart", f"the transformers are in {doing}"))
        for each in self._transformers:
            try:
                each.stop()
            except (RuntimeError, TimeoutError) as error:
                history.transactional.append(("client-stuck", f"{error}, in {each.doing}: {error.__cause__}"))
        target = everything(self._bootstrap)
        try:
            _wait_until(lambda: len(self._witness.seen) >= len(target))
        except TimeoutError:
            history.transactional.append(("aborted-read", f"the reader has {len(self._witness.seen)} of {len(target)}"))
        self._witness.stop()
        found = {
            "partial-transaction": partial_transactions(target),
            "output-wrong": lost_or_doubled(ends, target),
            "aborted-read": aborted_reads(target, self._witness.seen),
            "offsets-apart": offsets_apart(ends, positions(self._bootstrap)),
        }
        history.transactional += [(kind, text) for kind, texts in found.items() for text in texts]
        return {
            "transactions committed": self.committed,
            "transactions aborted": sum(each.aborted for each in self._transformers),
            "lives of transactional producers": sum(each.lives for each in self._transformers),
            "messages transformed once": len(target),
        }


def _wait_until(condition: Callable[[], bool]) -> None:
    """Ask again while the answer is no, or an error: a coordinator may have moved a moment ago."""
    until = time.monotonic() + PATIENCE_S
    while True:
        with suppress(KafkaException):
            if condition():
                return
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.1)
