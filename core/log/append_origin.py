"""The origin of an append (Kafka: AppendOrigin)."""

from enum import Enum


class AppendOrigin(Enum):
    """The origin of a batch, which decides its checks."""

    CLIENT = "client"
    """A client that has named no transactional id: its batches belong to no transaction."""
    TRANSACTION = "transaction"
    """A client that has named one."""
    BROKER = "broker"
    """The broker writes into a topic of its own: batches of transactions have no sequence numbers there."""
