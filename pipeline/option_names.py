"""The options that errors recommend, spelled for each front end: Spark, Python (`load`, `report`), command line."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from ..ports.error_codes import ErrorCode
from ..ports.errors import ApiError, BarnabasError


class Option(Enum):
    """An option with its spellings; "" where a front end does not have it."""

    ALLOW_DATA_LOSS = ("failOnDataLoss=false", "fail_on_data_loss=False", "--allow-data-loss")
    SKIP_DAMAGED = ("failOnDamage=false", "skip_damaged=True", "--skip-damaged")
    REPLACE_RECREATED = ("", "recreated='replace'", "--recreated replace")

    def __init__(self, spark: str, python: str, command: str) -> None:
        self.spark = spark
        self.python = python
        self.command = command


class DataLoss(ApiError):
    """OFFSET_OUT_OF_RANGE: records were deleted before they were read."""

    option = Option.ALLOW_DATA_LOSS

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)


def option_in(spark_text: str) -> Option | None:
    """Return the option that the text of an error from a Spark task recommends: Java passes on only the text."""
    return next((option for option in Option if option.spark and option.spark in spark_text), None)


def command_text(error: Exception) -> str:
    """Return the text of an error, with the option that it carries as the command spells it."""
    option: Option | None = getattr(error, "option", None)
    text = str(error)
    return text if option is None else text.replace(f"set {option.python}", f"give {option.command}")


@contextmanager
def on_command_line() -> Iterator[None]:
    """Raise an error that carries an option with the spelling of the command."""
    try:
        yield
    except BarnabasError as error:
        text = command_text(error)
        if text == str(error):
            raise
        raise BarnabasError(text) from error
