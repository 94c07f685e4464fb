"""The SCRAM credentials of users in the coordination tree, and the rules of APIs 50 and 51 (KIP-554).

A user's node has a JSON object per mechanism: salt and keys in base64, and the iterations.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from ...ports.broker_api.scram import (
    SCRAM_MECHANISMS,
    AlteredScramUser,
    AlterUserScramCredentials,
    DescribeUserScramCredentials,
    DescribeUserScramCredentialsResult,
    ScramCredentialInfo,
    ScramDeletion,
    ScramUpsertion,
    ScramUser,
)
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, ConfigError
from ...ports.values import Secret, frozen
from .sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramCredential, credential_of

UserNode = Mapping[str, object]


def encode_credential(credential: ScramCredential) -> dict[str, object]:
    """Return a credential as JSON."""
    return {
        "salt": b64encode(credential.salt).decode(),
        "stored_key": b64encode(credential.stored_key.value).decode(),
        "server_key": b64encode(credential.server_key.value).decode(),
        "iterations": credential.iterations,
    }


def decode_credential(node: UserNode | None, mechanism: str) -> ScramCredential | None:
    """Return the credential for a mechanism; None: the node has none, or one that is not ours."""
    stored = None if node is None else node.get(mechanism)
    if not isinstance(stored, Mapping):
        return None
    try:
        iterations = int(stored["iterations"])
        salt, stored_key, server_key = (b64decode(stored[name]) for name in ("salt", "stored_key", "server_key"))
    except (KeyError, TypeError, ValueError, Base64Error):
        return None
    return ScramCredential(
        salt=salt, stored_key=Secret(stored_key), server_key=Secret(server_key), iterations=iterations
    )


def describe_users(
    users: Mapping[str, UserNode], request: DescribeUserScramCredentials
) -> DescribeUserScramCredentialsResult:
    """Return the answer to DescribeUserScramCredentials: never a salt or a key."""
    wanted = list(request.users or ())
    if not wanted:
        found = (_described(user, users[user]) for user in sorted(users))
        return DescribeUserScramCredentialsResult(users=[user for user in found if user.credentials])
    return DescribeUserScramCredentialsResult(users=[_wanted(users, user, wanted) for user in dict.fromkeys(wanted)])


def _wanted(users: Mapping[str, UserNode], user: str, wanted: Sequence[str]) -> ScramUser:
    if wanted.count(user) > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return ScramUser(user=user, error=ErrorCode.DUPLICATE_RESOURCE, error_message=text)
    found = _described(user, users.get(user, {}))
    if found.credentials:
        return found
    text = f"Attempt to describe a user credential that does not exist: {user}"
    return ScramUser(user=user, error=ErrorCode.RESOURCE_NOT_FOUND, error_message=text)


def _described(user: str, node: UserNode) -> ScramUser:
    infos = []
    for number, mechanism in SCRAM_MECHANISMS.items():
        credential = decode_credential(node, mechanism)
        if credential is not None:
            infos.append(ScramCredentialInfo(mechanism=number, iterations=credential.iterations))
    return ScramUser(user=user, credentials=infos)


@frozen(kw_only=True)
class UserChange:
    """The changes of one user's credentials by mechanism; None: the credential is deleted."""

    credentials: Mapping[str, ScramCredential | None]

    def apply(self, node: UserNode | None) -> UserNode | None:
        """Return the new node of the user; None: no credential is left.

        Raises `ApiError` (RESOURCE_NOT_FOUND) if a credential to delete does not exist.
        """
        changed = dict(node or {})
        for mechanism, credential in self.credentials.items():
            if credential is not None:
                changed[mechanism] = encode_credential(credential)
            elif mechanism in changed:
                del changed[mechanism]
            else:
                text = "Attempt to delete a user credential that does not exist"
                raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, text)
        return changed if any(mechanism in changed for mechanism in SCRAM_MECHANISMS.values()) else None


def check_alterations(
    request: AlterUserScramCredentials,
) -> tuple[dict[str, UserChange], dict[str, AlteredScramUser]]:
    """Return the changes by user, and the users that are refused; each user stands for itself."""
    refused: dict[str, AlteredScramUser] = {}
    changes: dict[str, dict[str, ScramCredential | None]] = {}
    alterations: list[ScramDeletion | ScramUpsertion] = [*request.deletions, *request.upsertions]
    named = Counter(change.user for change in alterations)
    for change in alterations:
        try:
            if named[change.user] > 1:
                text = "A user credential cannot be altered twice in the same request"
                raise ApiError(ErrorCode.DUPLICATE_RESOURCE, text)
            mechanism, credential = _checked(change)
            changes[change.user] = {mechanism: credential}
        except ApiError as error:
            refused[change.user] = AlteredScramUser(user=change.user, error=error.code, error_message=error.message)
    return {user: UserChange(credentials=of_user) for user, of_user in changes.items()}, refused


def _checked(change: ScramDeletion | ScramUpsertion) -> tuple[str, ScramCredential | None]:
    if not change.user:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = SCRAM_MECHANISMS.get(change.mechanism)
    if mechanism is None:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramDeletion):
        return mechanism, None
    check_iterations(change.iterations)
    return mechanism, credential_of(mechanism, change.salted_password.value, change.salt, change.iterations)


def check_iterations(iterations: int) -> None:
    """Raise `ApiError` (UNACCEPTABLE_CREDENTIAL) for too few or too many iterations."""
    for is_wrong, word in ((iterations < ITERATIONS_MIN, "few"), (iterations > ITERATIONS_MAX, "many")):
        if is_wrong:
            raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too {word} iterations")


@frozen(kw_only=True)
class BootstrapUser:
    """A user that exists from the first start of a cluster on, as in `kafka-storage format --add-scram`."""

    name: str
    mechanism: str
    password: Secret[str]
    iterations: int


_BOOTSTRAP = r"(SCRAM-SHA-(?:256|512))=\[([^\]]*)\]"


def parse_bootstrap_users(text: Secret[str], key: str) -> Sequence[BootstrapUser]:
    """Return the users of `SCRAM-SHA-512=[name=NAME,password=PASSWORD];...`. Raises `ConfigError` without the value."""
    users = []
    for item in (each.strip() for each in _split(text.value, ";")):
        match = re.fullmatch(_BOOTSTRAP, item, re.IGNORECASE)
        if match is None:
            raise ConfigError(f"{key} has an entry that is not SCRAM-SHA-512=[name=NAME,password=PASSWORD]")
        mechanism, rest = match[1].upper(), match[2]
        options = dict(option.partition("=")[::2] for option in _split(rest, ","))
        unknown = options.keys() - {"name", "password", "iterations"}
        if unknown or not options.get("name") or not options.get("password"):
            raise ConfigError(f"{key}: each user has the options name, password and, if wanted, iterations")
        count = options.get("iterations", str(ITERATIONS_MIN))
        if not (count.isascii() and count.isdecimal() and ITERATIONS_MIN <= int(count) <= ITERATIONS_MAX):
            raise ConfigError(f"{key}: iterations of a user are not {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        password = Secret(options["password"].strip('"'))
        users.append(
            BootstrapUser(
                name=options["name"].strip('"'), mechanism=mechanism, password=password, iterations=int(count)
            )
        )
    return users


def _split(text: str, separator: str) -> Collection[str]:
    return [part.strip() for part in text.split(separator) if part.strip()]
