"""kazoo's lines for the log: each attempt to connect is one or two of them, which would fill a disk."""

import logging

from ..repeated_failure import RepeatedFailure


def logger_for(servers: str, failure: RepeatedFailure, log: logging.Logger) -> logging.Logger:
    """The logger of one client: what fails goes to `failure`, the rest is only of interest to debug; errors stay."""
    logger = logging.Logger(log.name)
    logger.parent = log
    logger.addFilter(_Summed(servers, failure, log))
    return logger


class _Summed(logging.Filter):
    def __init__(self, servers: str, failure: RepeatedFailure, log: logging.Logger) -> None:
        super().__init__()
        self._servers = servers
        self._failure = failure
        self._log = log

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR or record.levelno <= logging.DEBUG:
            return True
        if record.levelno == logging.WARNING and record.getMessage() != "Transition to CONNECTING":
            self._failure.failed(f"ZooKeeper at {self._servers}: {record.getMessage()}; it is tried again")
        record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
        return self._log.isEnabledFor(logging.DEBUG)
