"""One line about what went wrong."""

import os


def one_line(error: BaseException) -> str:
    """Kind, text and place of an exception, without line breaks."""
    text = " ".join(str(error).split())
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = (
        f" ({trace.tb_frame.f_code.co_filename.rpartition(os.sep)[2]}:{trace.tb_lineno})" if trace is not None else ""
    )
    return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"


def to_the_log(line: str) -> None:
    """Report a line to Python's logging, the default when the caller gives no `report`."""
    import logging

    logging.getLogger("barnabas").error(line)
