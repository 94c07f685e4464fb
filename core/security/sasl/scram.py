"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), with Kafka's extension for delegation tokens (KIP-48).

The broker stores no password: it has salt, stored key, server key and the number of iterations of each user and
mechanism. Its part of a login is a few HMACs; the client does the slow work of PBKDF2.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping

from ....ports.broker_api.envelope import Principal
from ....ports.errors import BarnabasError
from ....ports.scheduler import Scheduler
from ....ports.values import Secret, frozen
from .exchange import AuthenticatedClient, SaslAuthenticationError

HASHES: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The name of the hash by mechanism."""
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384
"""Kafka's bounds for iterations of stored credentials."""
_CLIENT_ITERATIONS_MAX = 1_000_000
"""A client refuses a broker that demands more: PBKDF2 would keep it busy."""
_MESSAGE_BYTES_MAX = 8192
_TOKEN_EXTENSION = "tokenauth"
_SALT_BYTES = 16


@frozen(kw_only=True)
class ScramCredential:
    """The stored form of a password."""

    salt: bytes
    stored_key: Secret[bytes]
    server_key: Secret[bytes]
    iterations: int


@frozen(kw_only=True)
class TokenCredential:
    """The SCRAM credential of a delegation token, and its owner."""

    credential: ScramCredential
    owner: Principal
    expires_at_ms: int


class ScramCredentials:
    """The credentials that the exchanges of one mechanism look up.

    of_user:    the credential of a user; None: there is none.
    of_token:   that of a delegation token by its id.
    pretended:  the key that the salts of unknown users are made from, so that an answer does not reveal who exists.
    """

    def __init__(
        self,
        mechanism: str,
        of_user: Callable[[str], ScramCredential | None],
        of_token: Callable[[str], TokenCredential | None],
        pretended: Secret[bytes],
    ) -> None:
        self.mechanism = mechanism
        self.of_user = of_user
        self.of_token = of_token
        self._pretended = pretended

    def pretended(self, user: str) -> ScramCredential:
        """Return a credential that no password fits: always the same for a user."""

        def derive(purpose: str, size: int) -> bytes:
            message = f"{self.mechanism} {purpose} {user}".encode("utf-8", "surrogatepass")
            return _hmac(self._pretended.value, message, "sha512")[:size]

        size = len(_hashed(HASHES[self.mechanism], b""))
        return ScramCredential(
            salt=derive("salt", _SALT_BYTES),
            stored_key=Secret(derive("stored key", size)),
            server_key=Secret(derive("server key", size)),
            iterations=ITERATIONS_MIN,
        )


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return PBKDF2-HMAC of a password; takes milliseconds."""
    from hashlib import pbkdf2_hmac  # OpenSSL comes with it, 3.5 MB, for the first login

    return pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return what a broker stores of a salted password."""
    name = HASHES[mechanism]
    return ScramCredential(
        salt=salt,
        stored_key=Secret(_hashed(name, _hmac(salted, b"Client Key", name))),
        server_key=Secret(_hmac(salted, b"Server Key", name)),
        iterations=iterations,
    )


class ScramServerExchange:
    """The server's side: two messages of the client. `nonce` is fresh random text, against replayed exchanges."""

    def __init__(self, credentials: ScramCredentials, nonce: str) -> None:
        self._credentials = credentials
        self._nonce = nonce
        self._hash = HASHES[credentials.mechanism]
        self._first_bare = ""
        self._server_first = ""
        self._gs2_header = b""
        self._credential: ScramCredential | None = None
        self._is_known = False
        self._pending: AuthenticatedClient | None = None
        self._has_failed = False
        self.client: AuthenticatedClient | None = None

    def evaluate(self, response: bytes) -> bytes:
        if self._has_failed or self.client is not None:
            raise self._failed()
        try:
            return self._answer_first(response) if self._credential is None else self._answer_final(response)
        except SaslAuthenticationError:
            self._has_failed = True
            raise

    def _failed(self, reason: str = "") -> SaslAuthenticationError:
        text = "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        return SaslAuthenticationError(f"{text}{self._credentials.mechanism}{reason}")

    def _answer_first(self, response: bytes) -> bytes:
        text = self._text(response)
        binding, _, rest = text.partition(",")
        authorization, _, bare = rest.partition(",")
        if binding not in ("n", "y") or (authorization and not authorization.startswith("a=")):
            raise self._failed(": invalid client first message")
        fields = bare.split(",")
        if fields and fields[0].startswith("m="):
            raise self._failed(": mandatory extensions are not supported")
        if len(fields) < 2 or not fields[0].startswith("n=") or not fields[1].startswith("r="):
            raise self._failed(": invalid client first message")
        user, nonce = self._name(fields[0][2:]), fields[1][2:]
        if not nonce or not _is_printable(nonce):
            raise self._failed(": invalid client first message")
        if authorization and self._name(authorization[2:]) != user:
            raise self._failed(": Client requested an authorization id that is different from username")
        self._look_up(user, _extensions(fields[2:]))
        credential = self._credential
        assert credential is not None
        self._gs2_header = text[: len(text) - len(bare)].encode()
        self._first_bare = bare
        self._nonce = nonce + self._nonce
        salt = b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode()

    def _look_up(self, user: str, extensions: Mapping[str, str]) -> None:
        found: ScramCredential | None = None
        if extensions.get(_TOKEN_EXTENSION, "").lower() == "true":
            token = self._credentials.of_token(user)
            if token is not None:
                found = token.credential
                self._pending = AuthenticatedClient(
                    principal=token.owner, expires_at_ms=token.expires_at_ms, is_token_authenticated=True
                )
        else:
            found = self._credentials.of_user(user)
            if found is not None:
                self._pending = AuthenticatedClient(principal=Principal("User", user))
        self._is_known = found is not None
        # Computed for known users as well, so that the time of the answer does not reveal who exists.
        pretended = self._credentials.pretended(user)
        self._credential = found if found is not None else pretended

    def _answer_final(self, response: bytes) -> bytes:
        text = self._text(response)
        without_proof, comma, proof_field = text.rpartition(",")
        fields = without_proof.split(",")
        if not comma or not proof_field.startswith("p=") or len(fields) < 2:
            raise self._failed(": invalid client final message")
        binding, nonce = _decoded(fields[0].removeprefix("c=")), fields[1].removeprefix("r=")
        if not fields[0].startswith("c=") or not fields[1].startswith("r=") or binding != self._gs2_header:
            raise self._failed(": invalid client final message")
        credential = self._credential
        assert credential is not None
        message = f"{self._first_bare},{self._server_first},{without_proof}".encode()
        proof = _decoded(proof_field[2:]) or b""
        signature = _hmac(credential.stored_key.value, message, self._hash)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        is_right = _same(_hashed(self._hash, client_key), credential.stored_key.value)
        is_fresh = _same(nonce.encode(), self._nonce.encode())
        if not (is_right and is_fresh and self._is_known and len(proof) == len(signature)):
            raise self._failed()
        self.client = self._pending
        return b"v=" + b64encode(_hmac(credential.server_key.value, message, self._hash))

    def _text(self, response: bytes) -> str:
        if len(response) > _MESSAGE_BYTES_MAX:
            raise self._failed(": the message is too long")
        try:
            return response.decode()
        except UnicodeDecodeError:
            raise self._failed(": the message is not UTF-8") from None

    def _name(self, text: str) -> str:
        name = _unescaped(text)
        if not name:
            raise self._failed(": invalid username")
        return name


class ScramClient:
    """The client's side; fulfils `ClientAuthenticator`. `nonce` is fresh random text without a comma.

    is_token: the user is the id of a delegation token, and the password the base64 text of its HMAC.
    salted:   salted passwords of earlier exchanges by (salt, iterations), so that a reconnect does not pay for PBKDF2.
    """

    def __init__(
        self,
        mechanism: str,
        user: str,
        password: Secret[str],
        nonce: str,
        *,
        is_token: bool = False,
        salted: dict[tuple[bytes, int], Secret[bytes]] | None = None,
    ) -> None:
        self.mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._user = user
        self._password = password
        self._nonce = nonce
        self._extension = f",{_TOKEN_EXTENSION}=true" if is_token else ""
        self._salted = {} if salted is None else salted
        self._expected: bytes | None = None
        self._is_done = False

    def prepare(self, scheduler: Scheduler, ready: Callable[[BarnabasError | None], None]) -> None:  # noqa: ARG002
        ready(None)

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    @property
    def _first_bare(self) -> str:
        name = self._user.replace("=", "=3D").replace(",", "=2C")
        return f"n={name},r={self._nonce}{self._extension}"

    def next(self, challenge: bytes) -> bytes | None:
        try:
            text = challenge.decode()
        except UnicodeDecodeError:
            raise SaslAuthenticationError("the broker's SCRAM message is not UTF-8") from None
        if self._expected is None:
            return self._answer_first(text)
        signature = _decoded(text[2:]) if text.startswith("v=") else None
        if self._is_done or signature is None or not _same(signature, self._expected):
            raise SaslAuthenticationError("the broker did not prove that it knows the password: is it the right one?")
        self._is_done = True
        return None

    def _answer_first(self, server_first: str) -> bytes:
        if server_first.startswith("e="):
            raise SaslAuthenticationError(f"the broker refused the authentication: {server_first[2:100]}")
        fields = server_first.split(",")
        names = [field[:2] for field in fields[:3]]
        if names != ["r=", "s=", "i="]:
            raise SaslAuthenticationError("the broker's first SCRAM message is invalid")
        nonce, salt, count = fields[0][2:], _decoded(fields[1][2:]), fields[2][2:]
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise SaslAuthenticationError("the broker's SCRAM nonce does not continue that of this client")
        iterations = int(count) if count.isascii() and count.isdecimal() and len(count) < 10 else 0
        if not salt or not ITERATIONS_MIN <= iterations <= _CLIENT_ITERATIONS_MAX:
            text = f"the broker demands {count[:20]} SCRAM iterations"
            raise SaslAuthenticationError(f"{text}; {ITERATIONS_MIN} to {_CLIENT_ITERATIONS_MAX} are acceptable")
        known = self._salted.get((salt, iterations))
        if known is None:
            known = Secret(salted_password(self.mechanism, self._password.value, salt, iterations))
            self._salted.clear()
            self._salted[salt, iterations] = known
        salted = known.value
        without_proof = f"c=biws,r={nonce}"
        message = f"{self._first_bare},{server_first},{without_proof}".encode()
        client_key = _hmac(salted, b"Client Key", self._hash)
        signature = _hmac(_hashed(self._hash, client_key), message, self._hash)
        proof = b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
        self._expected = _hmac(_hmac(salted, b"Server Key", self._hash), message, self._hash)
        return f"{without_proof},p={proof}".encode()


def _extensions(fields: list[str]) -> dict[str, str]:
    pairs = (field.partition("=") for field in fields)
    return {name: value for name, _, value in pairs}


def _decoded(text: str) -> bytes | None:
    """Return the bytes of a base64 text; None for any text that our encoder does not make."""
    try:
        decoded = b64decode(text, validate=True)
    except (Base64Error, ValueError):
        return None
    return decoded if b64encode(decoded).decode() == text else None


def _unescaped(text: str) -> str | None:
    """Return a user name without its escapes; None for any other `=`."""
    parts = text.split("=")
    name = parts[0]
    for part in parts[1:]:
        if part[:2] not in ("2C", "3D"):
            return None
        name += ("," if part[:2] == "2C" else "=") + part[2:]
    return name


def _is_printable(nonce: str) -> bool:
    return all("!" <= letter <= "~" and letter != "," for letter in nonce)


def _hashed(name: str, content: bytes) -> bytes:
    from hashlib import new

    return new(name, content).digest()


def _hmac(key: bytes, content: bytes, name: str) -> bytes:
    from hmac import digest

    return digest(key, content, name)


def _same(one: bytes, other: bytes) -> bool:
    """Compare in constant time."""
    from hmac import compare_digest

    return compare_digest(one, other)
