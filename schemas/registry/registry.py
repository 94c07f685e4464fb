"""The schema registry: its reader and its writer."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from .following import SchemaReader
from .library import Library
from .state import Subjects
from .writing import Decide, SchemaWriter

TOPIC = "_schemas"
_ATTEMPT_MS = 3000


class Registry:
    """A registry over a topic of a cluster. Callable from any thread."""

    def __init__(
        self, bootstrap: object, topic: str = TOPIC, *, timeout_s: float = 10.0, validate_defaults: bool = False
    ) -> None:
        """`timeout_s`: how long a change waits for unreachable brokers. `validate_defaults`: see `Library`."""
        self.library = Library(validate_defaults=validate_defaults)
        self.following = SchemaReader(bootstrap, topic, attempt_ms=_ATTEMPT_MS)
        self._writer = SchemaWriter(bootstrap, topic, self.following, attempt_ms=_ATTEMPT_MS, timeout_s=timeout_s)

    def start(self) -> None:
        """Start reading; `following.wait_loaded` waits until everything is read."""
        self.following.start()
        self._writer.start()

    def stop(self) -> None:
        """Stop after the current write."""
        self._writer.stop()
        self.following.stop()

    def subjects(self) -> Subjects:
        """Return the current subjects. Raises `RegistryError` before everything was read once."""
        return self.following.snapshot()

    def change(self, decide: Decide) -> Future[Any]:
        """Submit a change (see `SchemaWriter.submit`)."""
        return self._writer.submit(decide)
