"""The log lines about rebalances: their begin and cause, the members, and the empty group."""

import re

from support.group_harness import CALLER, Harness
from support.log_lines import infos_of

from barnabas.core.coordinator.group.shard import MEMBERS_MAX
from barnabas.ports.broker_api.groups import GroupProtocol, JoinGroup, LeaveGroup, LeavingMember
from barnabas.ports.report import Line

UUID = re.compile(r"-?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def observed(harness: Harness) -> list[str]:
    """Return the lines since the last call, member ids as #."""
    lines = [UUID.sub("#", line) for line in infos_of(harness.lines)]
    harness.lines.clear()
    return lines


def test_from_the_first_member_to_none() -> None:
    harness = Harness()
    member, generation = harness.stable()
    at = f"at {CALLER.host}"
    name = f"{CALLER.client_id}# {at}"
    assert observed(harness) == [f"group g: generation 1 (range) with 1 member: {name}; {name} joined"]
    second = harness.join()
    assert observed(harness) == [f"group g: rebalance after generation 1 begins; {name} joined"]
    harness.join(member=member)
    assert not second.waits
    assert observed(harness) == [f"group g: generation 2 (range) with 2 members: {name}, {name}"]
    assert harness.heartbeat("g", member, generation + 1) == 0
    assert observed(harness) == []
    harness.leave("g", member, second.result.member_id)
    assert observed(harness) == [f"group g: generation 3 has no members; {name} left, {name} left"]
    assert harness.delete("g") == [0]
    assert observed(harness) == ["group g was deleted"]


def test_a_session_that_ends_is_named_as_the_reason() -> None:
    harness = Harness()
    harness.stable()
    observed(harness)
    harness.pass_time(11_000)
    (line,) = observed(harness)
    assert line.startswith("group g: generation 2 has no members; ")
    assert line.endswith("was not heard of in its session")


def test_member_reasons_are_logged_and_truncated() -> None:
    harness = Harness()
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
    harness.coordinator.join(request, CALLER, answers.append)
    first = observed(harness)[0]
    assert first.endswith(f"joined ({'r' * 200})")
    member = answers[0].member_id  # type: ignore[attr-defined]
    leaving = LeavingMember(member_id=member, reason="the consumer is closed")
    harness.coordinator.leave(LeaveGroup(group_id="g", members=[leaving]), CALLER, answers.append)
    assert "left (the consumer is closed)" in observed(harness)[0]


def test_a_large_group_is_named_in_part() -> None:
    harness = Harness(group_initial_rebalance_delay_ms=3000)
    for _ in range(MEMBERS_MAX + 2):
        harness.join()
    harness.pass_time(40_000)
    line = next(each for each in harness.lines if "with 12 members" in each)
    assert "and 2 more" in line
    assert isinstance(line, Line)
    assert (line.fields["member_count"], len(line.fields["members"])) == (12, MEMBERS_MAX)  # type: ignore[arg-type]


def test_a_group_that_is_read_again_is_no_news() -> None:
    harness = Harness()
    harness.stable()
    assert observed(harness.restarted()) == []
