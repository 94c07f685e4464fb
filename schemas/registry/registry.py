"""A registry: what it knows, and who writes for it."""

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
    """Over a topic of a cluster, by whatever name. Callable from any thread."""

    def __init__(
        self, bootstrap: str, topic: str = TOPIC, *, timeout_s: float = 10.0, validate_defaults: bool = False
    ) -> None:
        """`timeout_s`: how long a change waits for brokers that are away. `validate_defaults`: see `Library`."""
        self.library = Library(validate_defaults=validate_defaults)
        self.following = SchemaReader(bootstrap, topic, attempt_ms=_ATTEMPT_MS)
        self._writer = SchemaWriter(bootstrap, topic, self.following, attempt_ms=_ATTEMPT_MS, timeout_s=timeout_s)

    def start(self) -> None:
        """Begin to read; `following.wait_loaded` tells when all is read."""
        self.following.start()
        self._writer.start()

    def stop(self) -> None:
        """In order: what is being written first."""
        self._writer.stop()
        self.following.stop()

    def subjects(self) -> Subjects:
        """What is known now. Raises `RegistryError` before everything was read once."""
        return self.following.snapshot()

    def change(self, decide: Decide) -> Future[Any]:
        """See `SchemaWriter.submit`."""
        return self._writer.submit(decide)
