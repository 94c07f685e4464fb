"""Robust anomaly scores, computed again by the definition."""

import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from support.real_data import read_series

from barnabas.pipeline.streams import robust_scores

WINDOW = 48


@pytest.fixture(scope="module")
def values(data_dir: Path) -> list[float]:
    return [value for _, value in read_series(data_dir, "realKnownCause/nyc_taxi.csv")[:800]]


def _by_the_definition(values: list[float]) -> list[tuple[float, float]]:
    expected: list[float] = []
    deviations: list[float] = []
    result = []
    for place, value in enumerate(values):
        before = values[max(0, place - WINDOW) : place]
        known = statistics.median(before) if len(before) >= WINDOW // 2 else math.nan
        spread = [abs(each) for each in deviations[max(0, place - WINDOW) : place] if not math.isnan(each)]
        scale = math.nan
        if len(spread) >= WINDOW // 2:
            scale = max(1.4826 * statistics.median(spread), 0.01 * abs(known))
        expected.append(known)
        deviations.append(value - known)
        result.append((known, (value - known) / scale))
    return result


@pytest.mark.data
def test_scores_are_what_the_definition_says(values: list[float]) -> None:
    expected, score = robust_scores(np.array(values), np.empty(0), window=WINDOW, min_scale=0.01)
    np.testing.assert_allclose(np.stack([expected, score], axis=1), _by_the_definition(values))
    assert np.isnan(score).sum() == WINDOW


@pytest.mark.data
@pytest.mark.parametrize("cut", [1, 30, 48, 200, 555])
def test_a_series_in_pieces_has_the_scores_of_the_whole(values: list[float], cut: int) -> None:
    whole = robust_scores(np.array(values), np.empty(0), window=WINDOW, min_scale=0.01)
    history = np.array(values[:cut])[-2 * WINDOW :]
    rest = robust_scores(np.array(values[cut:]), history, window=WINDOW, min_scale=0.01)
    np.testing.assert_allclose(np.stack(rest), np.stack(whole)[:, cut:])


def test_one_value_far_off_does_not_hide_the_next() -> None:
    quiet = [10.0, 11.0, 9.0, 10.0, 12.0, 8.0] * 20
    _, score = robust_scores(np.array([*quiet, 500.0, 10.0, 400.0]), np.empty(0), window=WINDOW, min_scale=0.01)
    assert score[-3] > 100
    assert abs(score[-2]) < 2
    assert score[-1] > 100


def test_missing_values_have_no_score_and_leave_no_trace() -> None:
    series = np.array([1.0, 2.0, 1.0, 3.0] * 30)
    holes = np.insert(series, [40, 80], np.nan)
    _, score = robust_scores(holes, np.empty(0), window=8, min_scale=0.01)
    _, without = robust_scores(series, np.empty(0), window=8, min_scale=0.01)
    assert np.isnan(score[[40, 81]]).all()
    np.testing.assert_allclose(score[~np.isnan(holes)], without)
