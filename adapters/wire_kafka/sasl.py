"""SaslHandshake (17) and SaslAuthenticate (36).

They are not in the table of `table`: no handler of a broker answers them, but the connection itself does.
"""

from typing import Any

from ...ports.broker_api.sasl import SaslAuthenticate, SaslAuthenticateResult, SaslHandshake, SaslHandshakeResult
from .api import Api
from .schema import DATA, ERROR, ERROR_TEXT, I64, TEXT, Array, Field, Struct

SASL_HANDSHAKE = Api(
    key=17,
    versions=(0, 1),
    flexible_from=2,
    request_type=SaslHandshake,
    request=Struct(SaslHandshake, Field("mechanism", TEXT)),
    result=Struct(SaslHandshakeResult, Field("error", ERROR), Field("mechanisms", Array(TEXT))),
    least_version=lambda _: 1,  # tokens in frames without a header follow version 0
)
SASL_AUTHENTICATE = Api(
    key=36,
    versions=(0, 2),
    flexible_from=2,
    request_type=SaslAuthenticate,
    request=Struct(SaslAuthenticate, Field("auth_bytes", DATA)),
    result=Struct(
        SaslAuthenticateResult,
        Field("error", ERROR),
        Field("error_message", ERROR_TEXT),
        Field("auth_bytes", DATA),
        Field("session_lifetime_ms", I64, since=1, absent=0),
    ),
)

SASL_BY_KEY: dict[int, Api] = {api.key: api for api in (SASL_HANDSHAKE, SASL_AUTHENTICATE)}
SASL_BY_REQUEST: dict[type[Any], Api] = {api.request_type: api for api in SASL_BY_KEY.values()}
