"""DescribeUserScramCredentials (50) and AlterUserScramCredentials (51)."""

from ...ports.broker_api.scram import (
    AlteredScramUser,
    AlterUserScramCredentials,
    AlterUserScramCredentialsResult,
    DescribeUserScramCredentials,
    DescribeUserScramCredentialsResult,
    ScramCredentialInfo,
    ScramDeletion,
    ScramUpsertion,
    ScramUser,
)
from ...ports.values import Secret
from .api import Api
from .schema import DATA, ERROR, ERROR_TEXT, I8, I32, TEXT, Array, Field, NullableArray, Row, Struct
from .wire import Reader, Writer


class SecretData:
    """Bytes that are secret."""

    def read(self, reader: Reader, version: int) -> Secret[bytes]:
        return Secret(DATA.read(reader, version))

    def write(self, writer: Writer, version: int, value: Secret[bytes]) -> None:
        DATA.write(writer, version, value.value)


SECRET_DATA = SecretData()

DESCRIBE_USER_SCRAM_CREDENTIALS = Api(
    key=50,
    versions=(0, 0),
    flexible_from=0,
    request_type=DescribeUserScramCredentials,
    request=Struct(DescribeUserScramCredentials, Field("users", NullableArray(Row(TEXT)))),
    result=Struct(
        DescribeUserScramCredentialsResult,
        Field("throttle_ms", I32),
        Field("error", ERROR),
        Field("error_message", ERROR_TEXT),
        Field(
            "users",
            Array(
                Struct(
                    ScramUser,
                    Field("user", TEXT),
                    Field("error", ERROR),
                    Field("error_message", ERROR_TEXT),
                    Field(
                        "credentials",
                        Array(Struct(ScramCredentialInfo, Field("mechanism", I8), Field("iterations", I32))),
                    ),
                )
            ),
        ),
    ),
)
ALTER_USER_SCRAM_CREDENTIALS = Api(
    key=51,
    versions=(0, 0),
    flexible_from=0,
    request_type=AlterUserScramCredentials,
    request=Struct(
        AlterUserScramCredentials,
        Field("deletions", Array(Struct(ScramDeletion, Field("user", TEXT), Field("mechanism", I8)))),
        Field(
            "upsertions",
            Array(
                Struct(
                    ScramUpsertion,
                    Field("user", TEXT),
                    Field("mechanism", I8),
                    Field("iterations", I32),
                    Field("salt", DATA),
                    Field("salted_password", SECRET_DATA),
                )
            ),
        ),
    ),
    result=Struct(
        AlterUserScramCredentialsResult,
        Field("throttle_ms", I32),
        Field(
            "users",
            Array(
                Struct(AlteredScramUser, Field("user", TEXT), Field("error", ERROR), Field("error_message", ERROR_TEXT))
            ),
        ),
    ),
)

APIS = (DESCRIBE_USER_SCRAM_CREDENTIALS, ALTER_USER_SCRAM_CREDENTIALS)
