"""A socket to a broker that speaks any version of any API, and sends what a test gives it."""

import struct
from typing import Any

from support.kafka_frames import newest, request_frame, result_of
from support.raw import RawConnection

from barnabas.adapters.wire_kafka.table import BY_REQUEST


class ApiConnection(RawConnection):
    """Requests as typed values; the versions are the test's choice."""

    def ask(self, request: Any, version: int | None = None, *, client_id: str | None = "c1") -> Any:
        """Return the typed answer; in the newest version unless another is named."""
        api = BY_REQUEST[type(request)]
        chosen = newest(request) if version is None else version
        frame = request_frame(api.key, chosen, 1, request, client_id)
        return result_of(api.key, chosen, self.exchange(struct.pack(">i", len(frame)) + frame))
