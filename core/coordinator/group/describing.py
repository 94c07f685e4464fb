"""ListGroups and DescribeGroups: answers built in steps, since they may be large."""

from attrs import evolve

from ....ports.broker_api.groups import (
    DescribeGroups,
    DescribeGroupsResult,
    GroupDescription,
    GroupMember,
    ListedGroup,
    ListGroups,
    ListGroupsResult,
)
from ....ports.broker_api.operations import GROUP_OPERATIONS
from ....ports.error_codes import ErrorCode
from ...traffic.steps import Steps
from .entry import GroupEntry, GroupTable
from .states import GroupState

GROUP_TYPE = "classic"
"""The generation of the group protocol that is spoken here (KIP-848 calls it so)."""

_GROUPS_PER_STEP = 64


def list_groups(table: GroupTable, request: ListGroups) -> Steps[ListGroupsResult]:
    """Return the groups in the requested states, of the requested types."""
    states = {state.lower() for state in request.states}
    types = {kind.lower() for kind in request.types}
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if table.is_loading else ErrorCode.NONE
    groups = []
    for number, entry in enumerate(tuple(table) if not types or GROUP_TYPE in types else (), 1):
        state = entry.group.state
        if table.get(entry.group.group_id) is entry and (not states or state.value.lower() in states):
            groups.append(_listed(entry))
        if not number % _GROUPS_PER_STEP:
            yield None
    return ListGroupsResult(groups=groups, error=error)


def _listed(entry: GroupEntry) -> ListedGroup:
    return ListedGroup(
        group_id=entry.group.group_id,
        protocol_type=entry.group.protocol_type or "",
        state=entry.group.state.value,
        group_type=GROUP_TYPE,
    )


def describe_groups(table: GroupTable, request: DescribeGroups) -> Steps[DescribeGroupsResult]:
    """Return the description of each requested group, once."""
    groups = []
    for group_id in dict.fromkeys(request.group_ids):
        group = _described(table, group_id)
        if request.include_authorized_operations and group.error is ErrorCode.NONE:
            group = evolve(group, authorized_operations=GROUP_OPERATIONS)  # every client may do everything
        groups.append(group)
        yield None
    return DescribeGroupsResult(groups=groups)


def _described(table: GroupTable, group_id: str) -> GroupDescription:
    error = table.check_key(group_id, may_be_empty=True)
    entry = table.get(group_id) if error is ErrorCode.NONE else None
    if entry is None:
        state = GroupState.DEAD.value if error is ErrorCode.NONE else ""
        return GroupDescription(group_id=group_id, state=state, error=error)
    group = entry.group
    protocol = group.protocol or "" if group.state is GroupState.STABLE else None
    members = [
        GroupMember(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            metadata=b"" if protocol is None else each.protocols.get(protocol, b""),
            assignment=b"" if protocol is None else each.assignment,
        )
        for each in group.roster
    ]
    return GroupDescription(
        group_id=group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol=protocol or "",
        members=members,
    )
