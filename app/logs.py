"""The lines of the broker in Python's logging: a logger for each package. No handlers: those are their user's."""

from __future__ import annotations

from ..ports.report import Level, Line

ROOT = "barnabas"
FIELDS = "barnabas_fields"
"""The attribute of a log record with the named values of its line."""


def log_report(text: str) -> None:
    """One line into the logger of its package, such as `barnabas.core.log`; a plain text is a warning of `barnabas`."""
    import logging

    if isinstance(text, Line):
        name, level, fields = f"{ROOT}.{text.logger}" if text.logger else ROOT, text.level, text.fields
    else:
        name, level, fields = ROOT, Level.WARNING, {}
    logger = logging.getLogger(name)
    if logger.isEnabledFor(level):
        logger.log(level, _one_line(text), extra={FIELDS: fields})


def is_enabled_for(name: str, level: Level) -> bool:
    """Return True if the logger of that package shows lines of that level."""
    import logging

    return logging.getLogger(f"{ROOT}.{name}").isEnabledFor(level)


def _one_line(text: str) -> str:
    """Escape control characters, so that a name from a client cannot begin a log line of its own."""
    if text.isprintable():
        return str(text)
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)
