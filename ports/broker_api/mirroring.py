"""MirrorRecords (ours): batches of another cluster for a topic that mirrors it, with their offsets and epochs."""

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..types import Buffer
from ..values import frozen
from .envelope import Request

ONLY_DESCRIBE = -1
"""The log end in a request that changes no log."""


@frozen(kw_only=True)
class MirrorRecords(Request["MirrorRecordsResult"]):
    """Append batches at the leader of a partition whose topic has `mirror.source`, as a follower of the source would.

    source:       the cluster that the sender mirrors; nothing is changed if it is not the one in `mirror.source`.
    log_end, last_epoch: the log end offset that the sender knows, and the leader epoch of the last batch; with another
                  log nothing is changed. -1 as the log end: only describe.
    leader_epoch: the leader epoch is raised to this one first, if it is lower.
    truncate_to, truncate_epoch: the source's last leader epoch up to the last one here, and its end offset: the log is
                  cut first where it diverges from the source; -1: not.
    log_start:    records below it are deleted.
    records:      whole batches.
    """

    topic: str
    partition: int
    source: str
    log_end: int = ONLY_DESCRIBE
    last_epoch: int = -1
    leader_epoch: int = -1
    truncate_to: int = -1
    truncate_epoch: int = -1
    log_start: int = -1
    records: Buffer = b""

    def failed(self, error: ApiError) -> "MirrorRecordsResult":
        return MirrorRecordsResult(error=error.code, error_message=error.message)


@frozen(kw_only=True)
class MirrorRecordsResult:
    """The state of the partition after the request, and after an error where it is known; -1: unknown.

    `last_epoch`: the leader epoch of the last batch. `leader_epoch`: that of the leader.
    """

    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    log_start: int = -1
    log_end: int = -1
    high_watermark: int = -1
    last_epoch: int = -1
    leader_epoch: int = -1
    throttle_ms: int = 0
