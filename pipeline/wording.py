"""One switch, three names: as an option of Spark's, as a keyword in Python, as a flag of the command.

Errors travel from a Spark task through `load` to the command line; there they name the switch as its user can set it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ..ports.errors import ApiError, BarnabasError

_SPARK_TO_PYTHON = {
    "failOnDataLoss=false": "fail_on_data_loss=False",
    "failOnDamage=false": "skip_damaged=True",
}
_PYTHON_TO_COMMAND = {
    "set fail_on_data_loss=False": "give --allow-data-loss",
    "fail_on_data_loss=False": "--allow-data-loss",
    "set skip_damaged=True": "give --skip-damaged",
    "recreated='replace'": "--recreated replace",
    "recreated must be": "--recreated must be",
    "bootstrap HOST:PORT": "--bootstrap HOST:PORT",
    "by zk.connect,": "by --set zk.connect=...,",
    "since_ms": "--since",
    "group=...": "--group",
}


def in_python(text: str) -> str:
    """Reword a text that names options of Spark's, for callers of `load` or `report`."""
    return _replaced(text, _SPARK_TO_PYTHON)


def in_command(text: str) -> str:
    """Reword a text that names keywords of Python, for users of the command."""
    return _replaced(text, _PYTHON_TO_COMMAND)


@contextmanager
def on_the_command_line() -> Iterator[None]:
    """Let errors that name keywords of Python name the flags of the command."""
    try:
        yield
    except BarnabasError as error:
        error.args = tuple(in_command(each) for each in error.args)
        if isinstance(error, ApiError):
            error.message = in_command(error.message)
        raise


def _replaced(text: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        text = text.replace(old, new)
    return text
