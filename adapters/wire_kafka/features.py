"""UpdateFeatures (57), and ApiVersions (18) as our clients ask it for the features of the cluster (KIP-584)."""

from ...ports.broker_api.features import (
    DescribeFeatures,
    DescribeFeaturesResult,
    FeatureUpdate,
    UpdatedFeature,
    UpdateFeatures,
    UpdateFeaturesResult,
    UpgradeType,
)
from ...ports.errors import Malformed
from . import versions, wire
from .api import Api
from .schema import BOOL, ERROR, ERROR_TEXT, I16, I32, TEXT, Array, Field, Struct
from .wire import CompactReader, Reader, Writer

WITH_UPGRADE_TYPE = 1
"""The version that knows unsafe downgrades, and validation."""


class _UpgradeType:
    """The kind of a change; in version 0 only whether the level may go down."""

    def read(self, reader: Reader, version: int) -> int:
        (value,) = reader.unpack(wire.I8)
        if version >= WITH_UPGRADE_TYPE:
            return int(value)
        return UpgradeType.SAFE_DOWNGRADE if value else UpgradeType.UPGRADE

    def write(self, writer: Writer, version: int, value: int) -> None:
        if version < WITH_UPGRADE_TYPE:
            value = int(value != UpgradeType.UPGRADE)
        writer.out += wire.I8.pack(value)


def _least_version(request: UpdateFeatures) -> int:
    needs_type = any(each.upgrade_type == UpgradeType.UNSAFE_DOWNGRADE for each in request.updates)
    return WITH_UPGRADE_TYPE if request.validate_only or needs_type else 0


UPDATE_FEATURES = Api(
    key=57,
    versions=(0, 2),
    flexible_from=0,
    request_type=UpdateFeatures,
    request=Struct(
        UpdateFeatures,
        Field("timeout_ms", I32),
        Field(
            "updates",
            Array(
                Struct(
                    FeatureUpdate,
                    Field("feature", TEXT),
                    Field("max_version_level", I16),
                    Field("upgrade_type", _UpgradeType()),
                )
            ),
        ),
        Field("validate_only", BOOL, since=WITH_UPGRADE_TYPE),
    ),
    result=Struct(
        UpdateFeaturesResult,
        Field("throttle_ms", I32),
        Field("error", ERROR),
        Field("error_message", ERROR_TEXT),
        Field(
            "results",
            Array(
                Struct(
                    UpdatedFeature,
                    Field("feature", TEXT),
                    Field("error", ERROR),
                    Field("error_message", ERROR_TEXT),
                )
            ),
            until=1,
        ),
    ),
    least_version=_least_version,
)


class _ApiVersionsRequest:
    """A flexible ApiVersions of a connection that has agreed on versions."""

    def read(self, reader: Reader, version: int) -> versions.ApiVersionsRequest:
        if not isinstance(reader, CompactReader):
            raise Malformed("ApiVersions of a version before 3")
        return versions.read_request(reader, version)

    def write(self, writer: Writer, version: int, value: versions.ApiVersionsRequest) -> None:
        writer.out += versions.request_body(version, value.software_name, value.software_version)


class _ApiVersionsResult:
    """The features in an answer; its ranges are passed over."""

    def read(self, reader: Reader, version: int) -> DescribeFeaturesResult:  # noqa: ARG002
        error = ERROR.read(reader, 0)
        for _ in range(max(0, reader.count())):
            for _ in range(3):
                reader.unpack(wire.I16)
            reader.skip_tags()
        (throttle_ms,) = reader.unpack(wire.I32)
        return DescribeFeaturesResult(features=versions.read_features(reader), error=error, throttle_ms=throttle_ms)

    def write(self, writer: Writer, version: int, value: DescribeFeaturesResult) -> None:
        writer.out += versions.response_body(version, (), value.features)


DESCRIBE_FEATURES = Api(
    key=versions.KEY,
    versions=(versions.FLEXIBLE, versions.WITH_ZERO_MIN),
    flexible_from=versions.FLEXIBLE,
    request_type=DescribeFeatures,
    request=_ApiVersionsRequest(),
    result=_ApiVersionsResult(),
)
"""Not in the table of APIs: the broker answers ApiVersions before the others."""

APIS = (UPDATE_FEATURES,)
