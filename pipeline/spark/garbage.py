"""Python workers of Spark collect garbage after each task: here that becomes cheap."""

import gc

from .errors import in_worker

_settled = False


def settle_worker() -> None:
    """Take what a Python worker of Spark has loaded until now out of later collections; elsewhere nothing.

    Spark's daemon has its workers collect after every task. With pandas and pyarrow loaded that takes 30 to 60 ms, on a
    core that the next task needs: half the time of a stream's small batches. Called when everything is loaded; once per
    process, since what a later task leaves is to be collected.
    """
    global _settled  # noqa: PLW0603  one per process, as what it is about
    if not _settled and in_worker():
        _settled = True
        gc.freeze()
