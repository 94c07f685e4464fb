"""Delegation tokens (KIP-48), SCRAM credentials of users (KIP-554), and ACLs (facts A6)."""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from ....core.cluster.change_queue import elsewhere
from ....core.cluster.entity_store import ChangeEntity
from ....core.cluster.layout import EntityKind
from ....core.security.acl import ResourcePattern, acls_in, check_acl, decode_acls, encode_acls, is_concrete
from ....core.security.delegation_tokens import (
    USER,
    TokenNode,
    TokenSettings,
    check_usable,
    encode_token,
    is_owner_or_renewer,
)
from ....core.security.scram_users import UserChange, UserNode, check_alterations, describe_users
from ....ports.broker_api.acls import (
    AclBinding,
    AclOutcome,
    CreateAcls,
    CreateAclsResult,
    DeleteAcls,
    DeleteAclsResult,
    DeletedAcls,
    DescribeAcls,
    DescribeAclsResult,
)
from ....ports.broker_api.envelope import ANONYMOUS, Caller, Principal, Reply
from ....ports.broker_api.scram import (
    AlteredScramUser,
    AlterUserScramCredentials,
    AlterUserScramCredentialsResult,
    DescribeUserScramCredentials,
    DescribeUserScramCredentialsResult,
)
from ....ports.broker_api.tokens import (
    CreateDelegationToken,
    CreateDelegationTokenResult,
    DelegationToken,
    DescribeDelegationToken,
    DescribeDelegationTokenResult,
    ExpireDelegationToken,
    ExpireDelegationTokenResult,
    RenewDelegationToken,
    RenewDelegationTokenResult,
)
from ....ports.coordination import CoordinationError
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError, broker_failed
from ....ports.scheduler import Timer
from ....ports.values import Secret
from ...config import BrokerConfig
from ..state.broker_state import BrokerState

_ID_BYTES = 16
_SALT_BYTES = 16

MayDescribe = Callable[[Caller, DelegationToken], bool]
MayCreate = Callable[[Caller, Principal], bool]
UseToken = Callable[[TokenSettings, DelegationToken, int], None]


def token_settings(config: BrokerConfig) -> TokenSettings | None:
    """Return the settings of tokens; None: `delegation.token.secret.key` is not set."""
    if config.delegation_token_secret_key is None:
        return None
    return TokenSettings(
        secret_key=config.delegation_token_secret_key,
        max_lifetime_ms=config.delegation_token_max_lifetime_ms,
        expiry_time_ms=config.delegation_token_expiry_time_ms,
    )


class TokenService:
    """Answers from the image, changes the tree, and deletes expired tokens from time to time.

    may_create:   True if a caller may create a token for another owner. may_describe: True if it may see a token of
    others.
    """

    def __init__(
        self,
        state: BrokerState,
        may_create: MayCreate = lambda _caller, _owner: True,
        may_describe: MayDescribe = lambda _caller, _token: True,
    ) -> None:
        self._state = state
        self._settings = token_settings(state.settings.static)
        self._may_create = may_create
        self._may_describe = may_describe
        self._check_ms = state.settings.static.delegation_token_expiry_check_interval_ms
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begin to delete expired tokens."""
        if self._settings is not None:
            self._timer = self._state.scheduler.call_later(self._check_ms, self._delete_expired)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def create(self, request: CreateDelegationToken, caller: Caller, reply: Reply[CreateDelegationTokenResult]) -> None:
        owner = request.owner or caller.principal

        def refused(code: ErrorCode) -> None:
            reply(CreateDelegationTokenResult(error=code, owner=owner, requester=caller.principal))

        if not _may_use_tokens(caller):
            refused(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
            return
        if owner != caller.principal and not self._may_create(caller, owner):
            refused(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
            return
        if any(renewer.kind != USER for renewer in request.renewers):
            refused(ErrorCode.INVALID_PRINCIPAL_TYPE)
            return
        if self._settings is None:
            refused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
            return
        state = self._state
        token = self._settings.new_token(
            urlsafe_b64encode(state.entropy.token(_ID_BYTES)).decode().rstrip("="),
            owner=owner,
            requester=caller.principal,
            renewers=request.renewers,
            max_lifetime_ms=request.max_lifetime_ms,
            now_ms=state.clock.now_ms(),
        )
        salt = state.entropy.token(_SALT_BYTES)

        async def store() -> None:
            node = await elsewhere(partial(encode_token, token, salt))
            await state.entities.put_all(EntityKind.TOKENS, {token.token_id: lambda _: node})

        def stored(result: BarnabasError | None) -> None:
            if isinstance(result, BarnabasError):
                reply(request.failed(result if isinstance(result, ApiError) else broker_failed()))
                return
            reply(
                CreateDelegationTokenResult(
                    owner=token.owner,
                    requester=token.requester,
                    issue_timestamp_ms=token.issue_timestamp_ms,
                    expiry_timestamp_ms=token.expiry_timestamp_ms,
                    max_timestamp_ms=token.max_timestamp_ms,
                    token_id=token.token_id,
                    hmac=token.hmac,
                )
            )

        state.entities.submit("the creation of a delegation token", store, stored)

    def renew(self, request: RenewDelegationToken, caller: Caller, reply: Reply[RenewDelegationTokenResult]) -> None:
        def answer(result: int | ApiError) -> None:
            if isinstance(result, ApiError):
                reply(request.failed(result))
            else:
                reply(RenewDelegationTokenResult(expiry_timestamp_ms=result))

        def renewing(settings: TokenSettings, token: DelegationToken, now_ms: int) -> None:
            period_ms = settings.expiry_time_ms if request.renew_period_ms < 0 else request.renew_period_ms
            self._set_expiry(settings.with_expiry(token, period_ms, now_ms), answer)

        self._use(request.hmac, caller, renewing, answer)

    def expire(self, request: ExpireDelegationToken, caller: Caller, reply: Reply[ExpireDelegationTokenResult]) -> None:
        def answer(result: int | ApiError) -> None:
            if isinstance(result, ApiError):
                reply(request.failed(result))
            else:
                reply(ExpireDelegationTokenResult(expiry_timestamp_ms=result))

        def expiring(settings: TokenSettings, token: DelegationToken, now_ms: int) -> None:
            if request.expiry_time_period_ms < 0:
                self._change(token.token_id, lambda _: None, now_ms, answer)
            else:
                self._set_expiry(settings.with_expiry(token, request.expiry_time_period_ms, now_ms), answer)

        self._use(request.hmac, caller, expiring, answer)

    def describe(
        self, request: DescribeDelegationToken, caller: Caller, reply: Reply[DescribeDelegationTokenResult]
    ) -> None:
        if not _may_use_tokens(caller):
            reply(DescribeDelegationTokenResult(error=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED))
            return
        if self._settings is None:
            reply(DescribeDelegationTokenResult(error=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED))
            return
        found = []
        for token_id, node in self._state.image.entities(EntityKind.TOKENS).items():
            token = self._settings.decode(token_id, node)
            if token is None or (
                request.owners is not None and not any(is_owner_or_renewer(token, owner) for owner in request.owners)
            ):
                continue
            if is_owner_or_renewer(token, caller.principal) or self._may_describe(caller, token):
                found.append(token)
        reply(DescribeDelegationTokenResult(tokens=found))

    def _use(
        self,
        secret: Secret[bytes],
        caller: Caller,
        use: UseToken,
        answer: Callable[[int | ApiError], None],
        *,
        is_late: bool = True,
    ) -> None:
        """Call `use` with the token, or `answer` with the error of `_usable`; if this broker `is_late`, another one may
        have created the token a moment ago."""

        def refreshed(result: BarnabasError | None) -> None:
            if result is None:
                self._use(secret, caller, use, answer, is_late=False)
            else:
                answer(result if isinstance(result, ApiError) else broker_failed())

        try:
            found = self._usable(secret, caller)
        except ApiError as error:
            if error.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND and is_late and not self._state.is_alone:
                entities = self._state.entities
                entities.submit("reading the delegation tokens", entities.refresh, refreshed)
            else:
                answer(error)
            return
        use(*found)

    def _usable(self, secret: Secret[bytes], caller: Caller) -> tuple[TokenSettings, DelegationToken, int]:
        """Return settings, token and time. Raises `ApiError` unless the caller may renew or expire the token."""
        if not _may_use_tokens(caller):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        if self._settings is None:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        now_ms = self._state.clock.now_ms()
        token = self._settings.find(self._state.image.entities(EntityKind.TOKENS), secret)
        check_usable(token, caller.principal, now_ms)
        return self._settings, token, now_ms

    def _set_expiry(self, token: DelegationToken, answer: Callable[[int | ApiError], None]) -> None:
        expiry_ms = token.expiry_timestamp_ms

        def change(node: TokenNode | None) -> TokenNode | None:
            return None if node is None else {**node, "expiry_ms": expiry_ms}

        self._change(token.token_id, change, expiry_ms, answer)

    def _change(
        self,
        token_id: str,
        change: Callable[[TokenNode | None], TokenNode | None],
        expiry_ms: int,
        answer: Callable[[int | ApiError], None],
    ) -> None:
        async def store() -> None:
            await self._state.entities.put_all(EntityKind.TOKENS, {token_id: change})

        def stored(result: BarnabasError | None) -> None:
            if isinstance(result, BarnabasError):
                answer(result if isinstance(result, ApiError) else broker_failed())
            else:
                answer(expiry_ms)

        self._state.entities.submit("the change of a delegation token", store, stored)

    def _delete_expired(self) -> None:
        state = self._state
        self._timer = state.scheduler.call_later(self._check_ms, self._delete_expired)
        now_ms = state.clock.now_ms()
        expired = [name for name, node in state.image.entities(EntityKind.TOKENS).items() if _has_expired(node, now_ms)]
        if not expired:
            return

        def change(node: TokenNode | None) -> TokenNode | None:
            return None if _has_expired(node, now_ms) else node

        async def store() -> None:
            await state.entities.put_all(EntityKind.TOKENS, dict.fromkeys(expired, change))

        state.entities.submit("the deletion of expired delegation tokens", store, lambda _: None)


def _has_expired(node: TokenNode | None, now_ms: int) -> bool:
    expiry_ms = None if node is None else node.get("expiry_ms")
    return isinstance(expiry_ms, int) and expiry_ms < now_ms


def _may_use_tokens(caller: Caller) -> bool:
    """Return False for clients that nothing authenticates, and for those that logged in by a token."""
    return caller.principal != ANONYMOUS and not caller.is_token_authenticated


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


CHANGES_MAX = 10_000
"""The most ACLs that one request may create, Kafka's limit."""
NO_AUTHORIZER = "No Authorizer is configured on the broker"

Value = Mapping[str, object]


class AclService:
    """Describes and changes the ACLs in the coordination tree. Where other rules decide, it answers SECURITY_DISABLED.

    Every broker may change them; compare-and-set keeps changes of two brokers apart.
    """

    def __init__(self, state: BrokerState, *, has_acls: bool) -> None:
        self._state = state
        self._has_acls = has_acls

    def _stored(self) -> Iterable[tuple[str, Sequence[AclBinding]]]:
        for name, acls in acls_in(self._state.image.entities(EntityKind.ACLS)):
            if not isinstance(acls, ValueError):
                yield name, acls

    def describe(self, request: DescribeAcls, _caller: Caller, reply: Reply[DescribeAclsResult]) -> None:
        if not self._has_acls:
            reply(request.failed(_disabled()))
            return
        found = [acl for _, acls in self._stored() for acl in acls if request.filter.matches(acl)]
        reply(DescribeAclsResult(acls=found))

    def create(self, request: CreateAcls, _caller: Caller, reply: Reply[CreateAclsResult]) -> None:
        refused = self._refused(request)
        if refused is not None:
            reply(request.failed(refused))
            return
        outcomes: list[AclOutcome] = []
        added: dict[str, list[AclBinding]] = {}
        for acl in request.acls:
            try:
                check_acl(acl)
            except ApiError as error:
                outcomes.append(AclOutcome(error=error.code, error_message=error.message))
                continue
            outcomes.append(AclOutcome())
            added.setdefault(str(ResourcePattern.of(acl)), []).append(acl)

        async def creating() -> CreateAclsResult:
            changes = {name: _adding(name, acls) for name, acls in added.items()}
            await self._state.entities.put_all(EntityKind.ACLS, changes)
            return CreateAclsResult(results=outcomes)

        self._state.entities.submit("CreateAcls", creating, reply)

    def _refused(self, request: CreateAcls) -> ApiError | None:
        if not self._has_acls:
            return _disabled()
        if len(request.acls) > CHANGES_MAX:
            return ApiError(ErrorCode.INVALID_REQUEST, f"a request may create {CHANGES_MAX} ACLs at most")
        if not all(is_concrete(acl) for acl in request.acls):
            text = "an ACL to create has ANY or MATCH, which only filters may have"
            return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
        return None

    def delete(self, request: DeleteAcls, _caller: Caller, reply: Reply[DeleteAclsResult]) -> None:
        if not self._has_acls:
            reply(request.failed(_disabled()))
            return

        async def deleting() -> DeleteAclsResult:
            deleted: dict[str, Sequence[AclBinding]] = {}

            def removing(name: str) -> ChangeEntity:
                def remove(value: Value | None) -> Value | None:
                    acls = [] if value is None else _decoded(name, value)
                    deleted[name] = [acl for acl in acls if any(each.matches(acl) for each in request.filters)]
                    remaining = [acl for acl in acls if acl not in deleted[name]]
                    return encode_acls(remaining) if remaining else None

                return remove

            await self._state.entities.refresh()  # a filter is for all ACLs, also for those of a moment ago elsewhere
            named = [
                name
                for name, acls in self._stored()
                if any(each.matches(acl) for acl in acls for each in request.filters)
            ]
            await self._state.entities.put_all(EntityKind.ACLS, {name: removing(name) for name in named})
            every = [acl for acls in deleted.values() for acl in acls]
            return DeleteAclsResult(
                results=[DeletedAcls(acls=[acl for acl in every if each.matches(acl)]) for each in request.filters]
            )

        self._state.entities.submit("DeleteAcls", deleting, reply)


def _disabled() -> ApiError:
    return ApiError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def _decoded(name: str, value: Value) -> Sequence[AclBinding]:
    try:
        return decode_acls(name, value)
    except ValueError as error:
        raise CoordinationError(f"the ACLs of {name[:300]} are unreadable; delete their node: {error}") from error


def _adding(name: str, acls: Sequence[AclBinding]) -> ChangeEntity:
    def add(value: Value | None) -> Value:
        known = [] if value is None else _decoded(name, value)
        return encode_acls(dict.fromkeys([*known, *acls]))

    return add
