"""The topics in a consumer's metadata: the broker reads nothing else of it (facts C6, E3)."""

from ....ports.errors import ApiError
from ..record_fields import RecordReader

CONSUMER_PROTOCOL = "consumer"
"""The protocol type whose metadata have this form."""


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics in a ConsumerProtocolSubscription; every version begins alike. None if it cannot be read."""
    reader = RecordReader(metadata)
    try:
        if reader.i16() < 0:
            return None
        return frozenset([reader.text() for _ in range(reader.count())])
    except ApiError:
        return None
