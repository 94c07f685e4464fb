"""DescribeUserScramCredentials and AlterUserScramCredentials: the credentials of users in the tree."""

from functools import partial

from ....core.cluster.layout import EntityKind
from ....core.security.scram_users import UserChange, UserNode, check_alterations, describe_users
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.scram import (
    AlteredScramUser,
    AlterUserScramCredentials,
    AlterUserScramCredentialsResult,
    DescribeUserScramCredentials,
    DescribeUserScramCredentialsResult,
)
from ....ports.errors import ApiError, BarnabasError, broker_failed
from ..state.broker_state import BrokerState


class ScramService:
    """Answers from the image, and changes the tree."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def describe(
        self, request: DescribeUserScramCredentials, _caller: Caller, reply: Reply[DescribeUserScramCredentialsResult]
    ) -> None:
        reply(describe_users(self._state.image.entities(EntityKind.USERS), request))

    def alter(
        self, request: AlterUserScramCredentials, _caller: Caller, reply: Reply[AlterUserScramCredentialsResult]
    ) -> None:
        changes, refused = check_alterations(request)

        def answer(result: dict[str, AlteredScramUser] | BarnabasError) -> None:
            if isinstance(result, BarnabasError):
                reply(request.failed(result if isinstance(result, ApiError) else broker_failed()))
                return
            rows = [refused.get(user) or result.get(user) or AlteredScramUser(user=user) for user in request.users]
            reply(AlterUserScramCredentialsResult(users=rows))

        if not changes:
            answer({})
            return
        self._state.entities.submit("the change of SCRAM credentials", partial(self._change, changes), answer)

    async def _change(self, changes: dict[str, UserChange]) -> dict[str, AlteredScramUser]:
        """Store the changes; return the users that are refused, because a credential to delete does not exist."""
        refused: dict[str, AlteredScramUser] = {}

        def change(user: str, node: UserNode | None) -> UserNode | None:
            refused.pop(user, None)
            try:
                return changes[user].apply(node)
            except ApiError as error:
                refused[user] = AlteredScramUser(user=user, error=error.code, error_message=error.message)
                return node

        await self._state.entities.put_all(
            EntityKind.USERS, {user: partial(change, user) for user in changes}, replace_unreadable=True
        )
        return refused
