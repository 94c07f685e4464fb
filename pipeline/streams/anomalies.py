"""Anomaly scores: how far a value is from the recent values of its series, by a measure that resists outliers."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .windows import watermarked

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

MAD_TO_SIGMA = 1.4826
"""The standard deviation of normal values is this times the median of their absolute deviations."""


def anomaly_scores(
    rows: "DataFrame",
    *by: str,
    valueColumn: str = "value",
    timeColumn: str = "timestamp",
    windowRows: int = 288,
    minScale: float = 0.01,
    delayThreshold: str | None = None,
) -> "DataFrame":
    """Every row with `expected` and `score` (doubles): how many robust standard deviations its value is off.

    Per value of the columns `by`, a series in the order of `timeColumn`: `expected` is the median of the `windowRows`
    values before, the deviation is divided by 1.4826 times the median of the absolute deviations before (MAD), at
    least `minScale` times the expected value. Positive above, negative below; null until half of `windowRows` is there,
    and for values that are null. Rules of thumb: |score| > 6 is rare, > 12 wants a look.

    Streams: append, any watermark or none; a series keeps 2 * `windowRows` values (8 bytes each) for ever.
    Within a micro-batch rows are put in order, late ones of later micro-batches are scored when they come.
    """
    from pyspark.sql.types import DoubleType, StructField, StructType

    shape = StructType([*rows.schema.fields, StructField("expected", DoubleType()), StructField("score", DoubleType())])

    def scored(part: "pd.DataFrame", history: "np.ndarray") -> "pd.DataFrame":
        found = part.sort_values(timeColumn, kind="stable")
        values = found[valueColumn].to_numpy(dtype="float64", na_value=float("nan"))
        found["expected"], found["score"] = robust_scores(values, history, window=windowRows, min_scale=minScale)
        return found

    if not rows.isStreaming:
        import numpy as np

        return rows.groupBy(*by).applyInPandas(lambda part: scored(part, np.empty(0)), shape)

    def score_rows(
        _: tuple[Any, ...], parts: "Iterator[pd.DataFrame]", state: "GroupState"
    ) -> "Iterator[pd.DataFrame]":
        import numpy as np
        import pandas as pd

        history = np.frombuffer(state.get[0] if state.exists else b"", dtype="<f8")
        found = scored(pd.concat(list(parts)), history)
        known = found[valueColumn].to_numpy(dtype="float64", na_value=float("nan"))
        newest = np.concatenate([history, known[~np.isnan(known)]])[-2 * windowRows :]
        state.update((newest.astype("<f8").tobytes(),))
        yield found

    timed = watermarked(rows, timeColumn, delayThreshold)
    return timed.groupBy(*by).applyInPandasWithState(score_rows, shape, "history BINARY", "append", "NoTimeout")


def robust_scores(
    values: "np.ndarray", history: "np.ndarray", *, window: int, min_scale: float
) -> "tuple[np.ndarray, np.ndarray]":
    """(expected, score) of each of `values`, which follow those of `history`; NaN where there is too little before.

    With the last 2 * `window` values as history the scores are the same as over the whole series.
    """
    import numpy as np
    import pandas as pd

    known = ~np.isnan(values)
    series = pd.Series(np.concatenate([history, values[known]]))
    least = max(2, window // 2)
    expected = series.rolling(window, min_periods=least).median().shift(1)
    deviation = series - expected
    spread = deviation.abs().rolling(window, min_periods=least).median().shift(1) * MAD_TO_SIGMA
    scale = np.maximum(np.maximum(spread, expected.abs() * min_scale), np.finfo(float).tiny)
    result = np.full((2, len(values)), np.nan)
    result[0, known] = expected.to_numpy()[len(history) :]
    result[1, known] = (deviation / scale).to_numpy()[len(history) :]
    return result[0], result[1]
