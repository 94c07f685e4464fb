"""What an operator reads of rebalances: when one begins and why, who the members are, and when a group is empty."""

import re

from support.group_house import CALLER, House
from support.log_lines import infos_of

from barnabas.core.coordinator.group.shard import MEMBERS_MAX
from barnabas.ports.broker_api.groups import GroupProtocol, JoinGroup, LeaveGroup, LeavingMember
from barnabas.ports.report import Line

UUID = re.compile(r"-?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def told(house: House) -> list[str]:
    """The lines since this was last asked, member ids as #."""
    lines = [UUID.sub("#", line) for line in infos_of(house.lines)]
    house.lines.clear()
    return lines


def test_from_the_first_member_to_none() -> None:
    house = House()
    member, generation = house.stable()
    at = f"at {CALLER.host}"
    name = f"{CALLER.client_id}# {at}"
    assert told(house) == [f"group g: generation 1 (range) with 1 member: {name}; {name} joined"]
    second = house.join()
    assert told(house) == [f"group g: rebalance after generation 1 begins; {name} joined"]
    house.join(member=member)
    assert not second.waits
    assert told(house) == [f"group g: generation 2 (range) with 2 members: {name}, {name}"]
    assert house.heartbeat("g", member, generation + 1) == 0
    assert told(house) == []
    house.leave("g", member, second.result.member_id)
    assert told(house) == [f"group g: generation 3 has no members; {name} left, {name} left"]
    assert house.delete("g") == [0]
    assert told(house) == ["group g was deleted"]


def test_a_session_that_ends_is_named_as_the_reason() -> None:
    house = House()
    house.stable()
    told(house)
    house.pass_time(11_000)
    (line,) = told(house)
    assert line.startswith("group g: generation 2 has no members; ")
    assert line.endswith("was not heard of in its session")


def test_member_reasons_are_logged_and_truncated() -> None:
    house = House()
    request = JoinGroup(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[GroupProtocol("range", b"")],
        knows_member_id_required=False,
        reason="r" * 10_000,
    )
    answers: list[object] = []
    house.coordinator.join(request, CALLER, answers.append)
    first = told(house)[0]
    assert first.endswith(f"joined ({'r' * 200})")
    member = answers[0].member_id  # type: ignore[attr-defined]
    leaving = LeavingMember(member_id=member, reason="the consumer is closed")
    house.coordinator.leave(LeaveGroup(group_id="g", members=[leaving]), CALLER, answers.append)
    assert "left (the consumer is closed)" in told(house)[0]


def test_a_large_group_is_named_in_part() -> None:
    house = House(group_initial_rebalance_delay_ms=3000)
    for _ in range(MEMBERS_MAX + 2):
        house.join()
    house.pass_time(40_000)
    line = next(each for each in house.lines if "with 12 members" in each)
    assert "and 2 more" in line
    assert isinstance(line, Line)
    assert (line.fields["member_count"], len(line.fields["members"])) == (12, MEMBERS_MAX)  # type: ignore[arg-type]


def test_a_group_that_is_read_again_is_no_news() -> None:
    house = House()
    house.stable()
    assert told(house.restarted()) == []
