"""Samples of the APIs of consumer groups."""

from support.kafka_sample import UNSET, Sample

from barnabas.ports.broker_api.groups import (
    Coordinator,
    DeleteGroups,
    DeleteGroupsResult,
    DescribeGroups,
    DescribeGroupsResult,
    FindCoordinator,
    FindCoordinatorResult,
    GroupDescription,
    GroupMember,
    GroupOutcome,
    GroupProtocol,
    Heartbeat,
    HeartbeatResult,
    JoinedMember,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    LeftMember,
    ListedGroup,
    ListGroups,
    ListGroupsResult,
    MemberAssignment,
    SyncGroup,
    SyncGroupResult,
)
from barnabas.ports.error_codes import ErrorCode

LONG_DATA = b"m" * 5000
"""Longer than what is copied into a frame."""

FIND_COORDINATOR = Sample(
    FindCoordinator(keys=["audit", "bills"], key_type=1),
    {"key_type": 1, "coordinator_keys": ["audit", "bills"]},
    FindCoordinatorResult(
        coordinators=[
            Coordinator(key="audit", node_id=3, host="three.example", port=9094),
            Coordinator(key="bills", error=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message="not yet"),
        ],
        throttle_ms=5,
    ),
    {
        "throttle_time": 5,
        "coordinators": [
            {
                "key": "audit",
                "node_id": 3,
                "host": "three.example",
                "port": 9094,
                "error_code": 0,
                "error_message": None,
            },
            {"key": "bills", "node_id": -1, "host": "", "port": -1, "error_code": 15, "error_message": "not yet"},
        ],
    },
    older_until=3,
    older=Sample(
        FindCoordinator(keys=["audit"]),
        {"key": "audit", "key_type": 0},
        FindCoordinatorResult(
            coordinators=[
                Coordinator(
                    key="audit",
                    node_id=3,
                    host="three.example",
                    port=9094,
                    error=ErrorCode.NOT_COORDINATOR,
                    error_message="who knows",
                )
            ],
            throttle_ms=6,
        ),
        {
            "throttle_time": 6,
            "error_code": 16,
            "error_message": "who knows",
            "node_id": 3,
            "host": "three.example",
            "port": 9094,
        },
    ),
)

JOIN_GROUP = Sample(
    JoinGroup(
        group_id="audit",
        session_timeout_ms=10_001,
        rebalance_timeout_ms=60_002,
        member_id="c1-4711",
        group_instance_id="left",
        protocol_type="consumer",
        protocols=[GroupProtocol("range", b"\x00\x01topics"), GroupProtocol("sticky", LONG_DATA)],
        reason="the subscription has changed",
    ),
    {
        "group_id": "audit",
        "session_timeout": 10_001,
        "rebalance_timeout": 60_002,
        "member_id": "c1-4711",
        "group_instance_id": "left",
        "protocol_type": "consumer",
        "protocols": [
            {"name": "range", "metadata": b"\x00\x01topics"},
            {"name": "sticky", "metadata": LONG_DATA},
        ],
        "reason": "the subscription has changed",
    },
    JoinGroupResult(
        error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        generation_id=12,
        protocol_type="consumer",
        protocol_name="range",
        leader="c1-4711",
        member_id="c2-4712",
        members=[
            JoinedMember(member_id="c1-4711", metadata=b"\x00\x01topics", group_instance_id="left"),
            JoinedMember(member_id="c2-4712", metadata=LONG_DATA),
        ],
        skip_assignment=True,
        throttle_ms=7,
    ),
    {
        "throttle_time": 7,
        "error_code": 23,
        "generation_id": 12,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "leader": "c1-4711",
        "skip_assignment": True,
        "member_id": "c2-4712",
        "members": [
            {"member_id": "c1-4711", "group_instance_id": "left", "metadata": b"\x00\x01topics"},
            {"member_id": "c2-4712", "group_instance_id": None, "metadata": LONG_DATA},
        ],
    },
    older_until=4,
    older=Sample(
        JoinGroup(
            group_id="audit",
            session_timeout_ms=10_001,
            rebalance_timeout_ms=60_002,
            protocol_type="consumer",
            protocols=[GroupProtocol("range", b"\x00\x01topics")],
        ),
        {
            "group_id": "audit",
            "session_timeout": 10_001,
            "rebalance_timeout": 60_002,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\x00\x01topics"}],
        },
        JoinGroupResult(error=ErrorCode.UNKNOWN_MEMBER_ID, throttle_ms=8),
        {
            "throttle_time": 8,
            "error_code": 25,
            "generation_id": -1,
            "protocol_name": "",
            "leader": "",
            "member_id": "",
            "members": [],
        },
    ),
)

HEARTBEAT = Sample(
    Heartbeat(group_id="audit", generation_id=12, member_id="c1-4711", group_instance_id="left"),
    {"group_id": "audit", "generation_id": 12, "member_id": "c1-4711", "group_instance_id": "left"},
    HeartbeatResult(error=ErrorCode.REBALANCE_IN_PROGRESS, throttle_ms=9),
    {"throttle_time": 9, "error_code": 27},
    older_until=2,
    older=Sample(
        Heartbeat(group_id="audit", generation_id=13, member_id="c1-4711"),
        {"group_id": "audit", "generation_id": 13, "member_id": "c1-4711"},
        HeartbeatResult(),
        {"throttle_time": 0, "error_code": 0},
    ),
)

LEAVE_GROUP = Sample(
    LeaveGroup(
        group_id="audit",
        members=[
            LeavingMember(member_id="c1-4711", reason="enough"),
            LeavingMember(group_instance_id="left"),
        ],
    ),
    {
        "group_id": "audit",
        "members": [
            {"member_id": "c1-4711", "group_instance_id": None, "reason": "enough"},
            {"member_id": "", "group_instance_id": "left", "reason": None},
        ],
    },
    LeaveGroupResult(
        members=[
            LeftMember(member_id="c1-4711", error=ErrorCode.UNKNOWN_MEMBER_ID),
            LeftMember(member_id="", group_instance_id="left"),
        ],
        throttle_ms=11,
    ),
    {
        "throttle_time": 11,
        "error_code": 0,
        "members": [
            {"member_id": "c1-4711", "group_instance_id": None, "error_code": 25},
            {"member_id": "", "group_instance_id": "left", "error_code": 0},
        ],
    },
    older_until=2,
    older=Sample(
        LeaveGroup(group_id="audit", members=[LeavingMember(member_id="c1-4711")]),
        {"group_id": "audit", "member_id": "c1-4711"},
        LeaveGroupResult(members=[LeftMember(member_id="c1-4711", error=ErrorCode.UNKNOWN_MEMBER_ID)], throttle_ms=12),
        {"throttle_time": 12, "error_code": 25},
    ),
)

SYNC_GROUP = Sample(
    SyncGroup(
        group_id="audit",
        generation_id=12,
        member_id="c1-4711",
        group_instance_id="left",
        protocol_type="consumer",
        protocol_name="range",
        assignments=[MemberAssignment("c1-4711", b"\x00\x02"), MemberAssignment("c2-4712", LONG_DATA)],
    ),
    {
        "group_id": "audit",
        "generation_id": 12,
        "member_id": "c1-4711",
        "group_instance_id": "left",
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [
            {"member_id": "c1-4711", "assignment": b"\x00\x02"},
            {"member_id": "c2-4712", "assignment": LONG_DATA},
        ],
    },
    SyncGroupResult(
        error=ErrorCode.ILLEGAL_GENERATION,
        protocol_type="consumer",
        protocol_name="range",
        assignment=b"\x00\x02",
        throttle_ms=13,
    ),
    {
        "throttle_time": 13,
        "error_code": 22,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignment": b"\x00\x02",
    },
    older_until=2,
    older=Sample(
        SyncGroup(group_id="audit", generation_id=12, member_id="c2-4712"),
        {"group_id": "audit", "generation_id": 12, "member_id": "c2-4712", "assignments": []},
        SyncGroupResult(assignment=LONG_DATA),
        {"throttle_time": 0, "error_code": 0, "assignment": LONG_DATA},
    ),
)

DESCRIBE_GROUPS = Sample(
    DescribeGroups(group_ids=["audit", "bills"], include_authorized_operations=True),
    {"groups": ["audit", "bills"], "include_authorized_operations": True},
    DescribeGroupsResult(
        groups=[
            GroupDescription(
                group_id="audit",
                state="Stable",
                protocol_type="consumer",
                protocol="range",
                members=[
                    GroupMember(
                        member_id="c1-4711",
                        group_instance_id="left",
                        client_id="c1",
                        client_host="/198.51.100.7",
                        metadata=b"\x00\x01topics",
                        assignment=LONG_DATA,
                    ),
                    GroupMember(member_id="c2-4712"),
                ],
                authorized_operations=0b1001,
            ),
            GroupDescription(group_id="bills", error=ErrorCode.NOT_COORDINATOR, error_message="elsewhere"),
        ],
        throttle_ms=14,
    ),
    {
        "throttle_time": 14,
        "groups": [
            {
                "error_code": 0,
                "error_message": None,
                "group_id": "audit",
                "group_state": "Stable",
                "protocol_type": "consumer",
                "protocol_data": "range",
                "members": [
                    {
                        "member_id": "c1-4711",
                        "group_instance_id": "left",
                        "client_id": "c1",
                        "client_host": "/198.51.100.7",
                        "member_metadata": b"\x00\x01topics",
                        "member_assignment": LONG_DATA,
                    },
                    {
                        "member_id": "c2-4712",
                        "group_instance_id": None,
                        "client_id": "",
                        "client_host": "",
                        "member_metadata": b"",
                        "member_assignment": b"",
                    },
                ],
                "authorized_operations": 0b1001,
            },
            {
                "error_code": 16,
                "error_message": "elsewhere",
                "group_id": "bills",
                "group_state": "",
                "protocol_type": "",
                "protocol_data": "",
                "members": [],
                "authorized_operations": UNSET,
            },
        ],
    },
)

LIST_GROUPS = Sample(
    ListGroups(states=["Stable", "Empty"], types=["classic"]),
    {"states_filter": ["Stable", "Empty"], "types_filter": ["classic"]},
    ListGroupsResult(
        groups=[
            ListedGroup(group_id="audit", protocol_type="consumer", state="Stable"),
            ListedGroup(group_id="bills", protocol_type="", state="Empty", group_type="share"),
        ],
        error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        throttle_ms=15,
    ),
    {
        "throttle_time": 15,
        "error_code": 14,
        "groups": [
            {"group_id": "audit", "protocol_type": "consumer", "group_state": "Stable", "group_type": "classic"},
            {"group_id": "bills", "protocol_type": "", "group_state": "Empty", "group_type": "share"},
        ],
    },
    older_until=4,
    older=Sample(
        ListGroups(),
        {"states_filter": []},
        ListGroupsResult(groups=[ListedGroup(group_id="audit", protocol_type="consumer", state="Dead")]),
        {
            "throttle_time": 0,
            "error_code": 0,
            "groups": [{"group_id": "audit", "protocol_type": "consumer", "group_state": "Dead"}],
        },
    ),
)

DELETE_GROUPS = Sample(
    DeleteGroups(group_ids=["audit", "bills"]),
    {"groups_names": ["audit", "bills"]},
    DeleteGroupsResult(
        groups=[GroupOutcome(group_id="audit"), GroupOutcome(group_id="bills", error=ErrorCode.NON_EMPTY_GROUP)],
        throttle_ms=16,
    ),
    {
        "throttle_time": 16,
        "results": [{"group_id": "audit", "error_code": 0}, {"group_id": "bills", "error_code": 68}],
    },
)
