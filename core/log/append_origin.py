"""Who appends to a log, and what is asked of it (facts B2, C6)."""

from enum import Enum


class AppendOrigin(Enum):
    """What the log goes by besides the batch itself."""

    CLIENT = "client"
    """A client that has named no transactional id: its batches belong to no transaction."""
    TRANSACTION = "transaction"
    """A client that has named one."""
    BROKER = "broker"
    """The broker writes into a topic of its own: batches of transactions have no sequence numbers there."""
