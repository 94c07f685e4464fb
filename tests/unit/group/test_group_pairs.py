"""Every event in every state: what is answered, and what becomes of the group.

A cell is `answer>state`: the error code (see SHORT), OK, `waits`, or `-` without a request; then the state, if it
changed (E empty, P preparing, C completing, S stable, D dead). The members are L (the leader), F, and the static member
S; in the state `preparing` L has joined again; in `storing` the leader's assignment is being written.
"""

from collections.abc import Callable

import pytest
from support.group_driver import REBALANCE_MS, SESSION_MS, Asked, Driver

from barnabas.ports.error_codes import ErrorCode

OTHER = (("range", b"other topics"),)
Event = Callable[[Driver, dict[str, str]], "Asked | ErrorCode | None"]


def _stable() -> tuple[Driver, dict[str, str]]:
    driver = Driver()
    leader, follower, static = driver.stable(2, static=["s"])
    names = {"L": leader, "F": follower, "S": static}
    if driver.group.roster.get(follower) is driver.group.roster.get(driver.group.roster.static_id("s")):
        names = {"L": leader, "F": static, "S": follower}
    return driver, names


def _empty() -> tuple[Driver, dict[str, str]]:
    driver, names = _stable()
    driver.leave(*names.values())
    return driver, names


def _promising() -> tuple[Driver, dict[str, str]]:
    driver, names = _empty()
    return driver, {**names, "P": driver.join(at_once=False).result.member_id}


def _preparing() -> tuple[Driver, dict[str, str]]:
    driver, names = _stable()
    driver.join(names["L"])
    return driver, names


def _completing() -> tuple[Driver, dict[str, str]]:
    driver, names = _preparing()
    driver.join(names["F"])
    driver.join(names["S"], instance="s")
    return driver, names


def _storing() -> tuple[Driver, dict[str, str]]:
    driver, names = _completing()
    driver.hold = True
    driver.sync(names["L"], {names["F"]: b"f"})
    return driver, names


def _dead() -> tuple[Driver, dict[str, str]]:
    driver, names = _stable()
    driver.carry_out(driver.group.die(ErrorCode.NOT_COORDINATOR))
    return driver, names


STATES = {
    "empty": _empty,
    "promising": _promising,
    "preparing": _preparing,
    "completing": _completing,
    "storing": _storing,
    "stable": _stable,
    "dead": _dead,
}


def _expire_sessions(driver: Driver, names: dict[str, str]) -> None:
    driver.pass_time(SESSION_MS)


def _wait_for_rebalance(driver: Driver, names: dict[str, str]) -> None:
    while driver.now_ms < 1000 + REBALANCE_MS:
        driver.pass_time(SESSION_MS - 1)
        for name in ("L", "F", "S"):
            driver.heartbeat(names[name])


def _stored(error: ErrorCode) -> Event:
    def event(driver: Driver, names: dict[str, str]) -> None:
        if driver.held:
            driver.finish(error)

    return event


def _die(driver: Driver, names: dict[str, str]) -> None:
    driver.carry_out(driver.group.die(ErrorCode.NOT_COORDINATOR))


def _forget_promise(driver: Driver, names: dict[str, str]) -> None:
    driver.carry_out(driver.group.remove_pending_member(names.get("P", "P"), driver.now_ms))


EVENTS: dict[str, Event] = {
    "join new": lambda d, n: d.join(),
    "join new, id required": lambda d, n: d.join(at_once=False),
    "join promised": lambda d, n: d.join(n.get("P", "P"), at_once=False),
    "join new static": lambda d, n: d.join(instance="t"),
    "join static again": lambda d, n: d.join(instance="s"),
    "join static with its id": lambda d, n: d.join(n["S"], instance="s"),
    "join static with another id": lambda d, n: d.join(n["F"], instance="s"),
    "join leader": lambda d, n: d.join(n["L"]),
    "join follower": lambda d, n: d.join(n["F"]),
    "join follower, changed": lambda d, n: d.join(n["F"], protocols=OTHER),
    "join stranger": lambda d, n: d.join("nobody"),
    "join without protocols": lambda d, n: d.join(protocols=()),
    "sync leader": lambda d, n: d.sync(n["L"], {n["L"]: b"1"}),
    "sync follower": lambda d, n: d.sync(n["F"]),
    "sync old generation": lambda d, n: d.sync(n["F"], generation=d.group.generation - 1),
    "sync stranger": lambda d, n: d.sync("nobody"),
    "heartbeat": lambda d, n: d.heartbeat(n["F"]),
    "heartbeat old generation": lambda d, n: d.heartbeat(n["F"], d.group.generation - 1),
    "heartbeat stranger": lambda d, n: d.heartbeat("nobody"),
    "heartbeat fenced": lambda d, n: d.heartbeat("nobody", instance="s"),
    "leave leader": lambda d, n: d.leave(n["L"])[0],
    "leave follower": lambda d, n: d.leave(n["F"])[0],
    "leave static": lambda d, n: d.leave("", instance="s")[0],
    "leave all": lambda d, n: d.leave(*n.values())[0],
    "leave stranger": lambda d, n: d.leave("nobody")[0],
    "leave promised": lambda d, n: d.leave(n.get("P", "P"))[0],
    "commit": lambda d, n: d.commit(n["F"], d.group.generation),
    "commit old generation": lambda d, n: d.commit(n["F"], d.group.generation - 1),
    "commit outside": lambda d, n: d.commit(),
    "stored": _stored(ErrorCode.NONE),
    "stored not": _stored(ErrorCode.NOT_COORDINATOR),
    "session over": _expire_sessions,
    "rebalance timeout": _wait_for_rebalance,
    "promise forgotten": _forget_promise,
    "die": _die,
}

SHORT = {
    "NONE": "OK",
    "UNKNOWN_MEMBER_ID": "unknown",
    "ILLEGAL_GENERATION": "illegal",
    "FENCED_INSTANCE_ID": "fenced",
    "REBALANCE_IN_PROGRESS": "rebalance",
    "INCONSISTENT_GROUP_PROTOCOL": "inconsist",
    "MEMBER_ID_REQUIRED": "required",
    "COORDINATOR_NOT_AVAILABLE": "not_avail",
}

TABLE = """
event                       | empty     | promising | preparing | completing | storing   | stable    | dead
join new                    | OK>C      | OK>C      | waits     | waits>P    | waits>P   | waits>P   | not_avail
join new, id required       | required  | required  | required  | required   | required  | required  | not_avail
join promised               | unknown   | OK>C      | unknown   | unknown    | unknown   | unknown   | not_avail
join new static             | OK>C      | OK>C      | waits     | waits>P    | waits>P   | waits>P   | not_avail
join static again           | OK>C      | OK>C      | waits     | waits>P    | waits>P   | OK        | not_avail
join static with its id     | unknown   | unknown   | waits     | OK         | OK        | OK        | not_avail
join static with another id | unknown   | unknown   | fenced    | fenced     | fenced    | fenced    | not_avail
join leader                 | unknown   | unknown   | waits     | OK         | OK        | waits>P   | not_avail
join follower               | unknown   | unknown   | waits     | OK         | OK        | OK        | not_avail
join follower, changed      | unknown   | unknown   | waits     | waits>P    | waits>P   | waits>P   | not_avail
join stranger               | unknown   | unknown   | unknown   | unknown    | unknown   | unknown   | not_avail
join without protocols      | inconsist | inconsist | inconsist | inconsist  | inconsist | inconsist | not_avail
sync leader                 | unknown   | unknown   | rebalance | OK>S       | waits     | OK        | not_avail
sync follower               | unknown   | unknown   | rebalance | waits      | waits     | OK        | not_avail
sync old generation         | unknown   | unknown   | illegal   | illegal    | illegal   | illegal   | not_avail
sync stranger               | unknown   | unknown   | unknown   | unknown    | unknown   | unknown   | not_avail
heartbeat                   | unknown   | unknown   | rebalance | OK         | OK        | OK        | not_avail
heartbeat old generation    | unknown   | unknown   | illegal   | illegal    | illegal   | illegal   | not_avail
heartbeat stranger          | unknown   | unknown   | unknown   | unknown    | unknown   | unknown   | not_avail
heartbeat fenced            | unknown   | unknown   | fenced    | fenced     | fenced    | fenced    | not_avail
leave leader                | unknown   | unknown   | OK        | OK>P       | OK>P      | OK>P      | not_avail
leave follower              | unknown   | unknown   | OK        | OK>P       | OK>P      | OK>P      | not_avail
leave static                | unknown   | unknown   | OK        | OK>P       | OK>P      | OK>P      | not_avail
leave all                   | unknown   | unknown   | OK>E      | OK>E       | OK>E      | OK>E      | not_avail
leave stranger              | unknown   | unknown   | unknown   | unknown    | unknown   | unknown   | not_avail
leave promised              | unknown   | OK        | unknown   | unknown    | unknown   | unknown   | not_avail
commit                      | unknown   | unknown   | OK        | rebalance  | rebalance | OK        | not_avail
commit old generation       | unknown   | unknown   | illegal   | illegal    | illegal   | illegal   | not_avail
commit outside              | OK        | OK        | unknown   | unknown    | unknown   | unknown   | not_avail
stored                      | -         | -         | -         | -          | ->S       | -         | -
stored not                  | -         | -         | -         | -          | ->P       | -         | -
session over                | -         | -         | ->C       | ->E        | ->P       | ->E       | -
rebalance timeout           | -         | -         | ->C       | ->E        | ->P       | -         | -
promise forgotten           | -         | -         | -         | -          | -         | -         | -
die                         | ->D       | ->D       | ->D       | ->D        | ->D       | ->D       | -
"""


def _cell(state: str, event: str) -> str:
    driver, names = STATES[state]()
    before = driver.group.state
    outcome = EVENTS[event](driver, names)
    observed = "-"
    if isinstance(outcome, Asked):
        observed = "waits" if outcome.waits else outcome.error.name
    elif outcome is not None:
        observed = outcome.name
    observed = SHORT.get(observed, observed)
    after = driver.group.state
    return observed if after is before else f"{observed}>{after.value[0]}"


def _rows() -> dict[str, list[str]]:
    rows = [line.split("|") for line in TABLE.strip().splitlines()]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}


def test_the_table_has_every_pair() -> None:
    rows = _rows()
    assert rows.pop("event") == list(STATES)
    assert list(rows) == list(EVENTS)
    assert {len(cells) for cells in rows.values()} == {len(STATES)}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", EVENTS)
def test_every_event_in_every_state(event: str, state: str) -> None:
    assert _cell(state, event) == _rows()[event][list(STATES).index(state)]
