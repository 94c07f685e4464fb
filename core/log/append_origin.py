"""The origin of an append (Kafka: AppendOrigin)."""

from enum import Enum


class AppendOrigin(Enum):
    """The origin of a batch, which decides its checks."""

    CLIENT = "client"
    """A client that has named no transactional id: its batches belong to no transaction."""
    TRANSACTION = "transaction"
    """A client that has named one."""
    TRANSACTION_VERSION_2 = "transaction of version 2"
    """A client that has named one, and whose transactions have an epoch each (KIP-890)."""
    BROKER = "broker"
    """The broker writes into a topic of its own: batches of transactions have no sequence numbers there."""
