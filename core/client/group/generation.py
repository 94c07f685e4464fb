"""A member's generation in its group, and the texts for refusals."""

from ....ports.broker_api.groups import NO_GENERATION
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.values import define
from .events import GroupSettings

FENCED_ERRORS = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
"""The errors of a member that the group has removed, or has rebalanced without."""


@define
class Generation:
    """The member's identity by the coordinator's last response."""

    member_id: str = ""
    generation_id: int = NO_GENERATION
    protocol_name: str = ""

    def is_member(self) -> bool:
        return self.generation_id != NO_GENERATION

    def forget(self, *, member_id: bool) -> None:
        """Reset the generation, and with `member_id` the member id too."""
        self.generation_id = NO_GENERATION
        self.protocol_name = ""
        if member_id:
            self.member_id = ""


def explained(error: ErrorCode, settings: GroupSettings, assignors: str) -> ApiError:
    """Return the error with a text that describes the remedy."""
    group = f"group {settings.group_id}"
    texts = {
        ErrorCode.GROUP_MAX_SIZE_REACHED: f"{group} has as many members as the broker's group.max.size allows",
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
            f"the members of {group} have none of this one's assignors ({assignors}) in common, or are no consumers; "
            "choose another partition.assignment.strategy or group.id"
        ),
        ErrorCode.INVALID_SESSION_TIMEOUT: (
            f"session.timeout.ms={settings.session_timeout_ms} is not between the broker's "
            "group.min.session.timeout.ms and group.max.session.timeout.ms"
        ),
        ErrorCode.INVALID_GROUP_ID: f"the broker does not accept group.id {settings.group_id!r}",
        ErrorCode.FENCED_INSTANCE_ID: (
            f"another consumer has joined {group} with group.instance.id {settings.group_instance_id!r}"
        ),
        ErrorCode.GROUP_AUTHORIZATION_FAILED: f"no permission to use {group}",
        ErrorCode.UNKNOWN_MEMBER_ID: f"{group} does not know this member: it did not answer in time",
        ErrorCode.ILLEGAL_GENERATION: f"{group} has been rebalanced without this member",
        ErrorCode.REBALANCE_IN_PROGRESS: f"{group} is being rebalanced",
    }
    return ApiError(error, texts.get(error, group))
