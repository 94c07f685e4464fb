"""Keeps what the tests of the matrix find, for the table in docs/compatibility.md."""

from collections.abc import Generator

import pytest
from support.compat import outcomes


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    cell = getattr(item, "callspec", None)
    if cell is None or "feature" not in cell.params or report.when == "teardown":
        return report
    if report.when == "setup" and report.passed:
        return report
    state = {"passed": "yes", "failed": "no", "skipped": "no" if hasattr(report, "wasxfail") else "skipped"}
    reason = "" if call.excinfo is None else str(call.excinfo.value)[:2000]
    outcomes.write(
        outcomes.Found(
            client=cell.params["key"],
            feature=cell.params["feature"],
            state=state[report.outcome],
            reason=reason,
            version=str(dict(item.user_properties).get("version", "")),
            run=outcomes.this_run(),
        )
    )
    return report
