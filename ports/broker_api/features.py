"""The features of a cluster (KIP-584): what ApiVersions (18) says of them, and UpdateFeatures (57)."""

from collections.abc import Mapping, Sequence
from enum import IntEnum

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import frozen
from .envelope import Request


@frozen
class SupportedVersionRange:
    """The levels of a feature that a broker supports."""

    min_version: int
    max_version: int

    def __contains__(self, level: int) -> bool:
        return self.min_version <= level <= self.max_version


@frozen
class FinalizedVersionRange:
    """The levels of a feature that the cluster has finalized; both numbers are the same since Kafka 3.3."""

    min_version_level: int
    max_version_level: int


@frozen(kw_only=True)
class FeatureMetadata:
    """The features as a broker knows them: the levels that it supports, and those that the cluster has finalized.

    A feature at the level 0 is left out of `finalized`.
    """

    supported: Mapping[str, SupportedVersionRange] = {}
    finalized: Mapping[str, FinalizedVersionRange] = {}
    finalized_epoch: int = -1
    """Grows with each change of the finalized levels; -1: the broker does not know them."""

    def level(self, name: str) -> int:
        """Return the finalized level of a feature; 0 where there is none."""
        found = self.finalized.get(name)
        return 0 if found is None else found.max_version_level


@frozen(kw_only=True)
class DescribeFeatures(Request["DescribeFeaturesResult"]):
    """Ask one broker for the features: on the wire, ApiVersions."""

    def failed(self, error: ApiError) -> "DescribeFeaturesResult":
        return DescribeFeaturesResult(features=FeatureMetadata(), error=error.code)


@frozen(kw_only=True)
class DescribeFeaturesResult:
    features: FeatureMetadata
    error: ErrorCode = ErrorCode.NONE
    throttle_ms: int = 0


class UpgradeType(IntEnum):
    """The kinds of change of a finalized level. A safe downgrade loses no metadata."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@frozen(kw_only=True)
class FeatureUpdate:
    """The level that a feature should get; 0 removes it."""

    feature: str
    max_version_level: int
    upgrade_type: int = UpgradeType.UPGRADE


@frozen(kw_only=True)
class UpdateFeatures(Request["UpdateFeaturesResult"]):
    """Change the finalized levels of features: all of them, or none."""

    updates: Sequence[FeatureUpdate]
    validate_only: bool = False
    timeout_ms: int = 60_000

    def failed(self, error: ApiError) -> "UpdateFeaturesResult":
        return UpdateFeaturesResult(error=error.code, error_message=error.message)


@frozen
class UpdatedFeature:
    """A feature whose level was changed; an `error` stands there only in answers of old brokers."""

    feature: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@frozen(kw_only=True)
class UpdateFeaturesResult:
    """The outcome for all features. `results` is empty after an error, and in version 2."""

    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    results: Sequence[UpdatedFeature] = ()
    throttle_ms: int = 0
