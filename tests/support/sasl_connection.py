"""A socket to a broker that authenticates by hand, rightly or not."""

import struct
from typing import Any

from support.api_connection import ApiConnection

from barnabas.adapters.wire_kafka.sasl import SASL_BY_REQUEST
from barnabas.core.security.sasl.client import ClientAuthenticator
from barnabas.ports.broker_api.sasl import SaslAuthenticate, SaslAuthenticateResult, SaslHandshake, SaslHandshakeResult
from barnabas.ports.error_codes import ErrorCode


class SaslConnection(ApiConnection):
    """Requests before and after an authentication."""

    def handshake(self, mechanism: str) -> SaslHandshakeResult:
        result: SaslHandshakeResult = self.ask_sasl(SaslHandshake(mechanism=mechanism))
        return result

    def authenticate(self, token: bytes) -> SaslAuthenticateResult:
        result: SaslAuthenticateResult = self.ask_sasl(SaslAuthenticate(auth_bytes=token))
        return result

    def log_in(self, client: ClientAuthenticator) -> SaslAuthenticateResult:
        """Play the whole exchange; return the last answer."""
        assert self.handshake(client.mechanism).error is ErrorCode.NONE
        token: bytes | None = client.first()
        while True:
            assert token is not None
            result = self.authenticate(token)
            if result.error is not ErrorCode.NONE:
                return result
            token = client.next(result.auth_bytes)
            if token is None:
                return result

    def ask_sasl(self, request: Any) -> Any:
        api = SASL_BY_REQUEST[type(request)]
        version = 1
        writer = api.writer(version)
        writer.out += struct.pack(">hhih", api.key, version, 1, -1)
        api.request.write(writer, version, request)
        frame = b"".join(bytes(piece) for piece in writer.pieces())  # type: ignore[arg-type]  # no regions here
        answer = self.exchange(struct.pack(">i", len(frame)) + frame)
        return api.result.read(api.reader(version, memoryview(answer), 4, 1000), version)
