"""Samples of UpdateFeatures."""

from support.kafka_sample import Sample

from barnabas.ports.broker_api.features import (
    FeatureUpdate,
    UpdatedFeature,
    UpdateFeatures,
    UpdateFeaturesResult,
    UpgradeType,
)
from barnabas.ports.error_codes import ErrorCode

_REFUSED = {"throttle_time": 21, "error_code": 95, "error_message": "no level 9"}
_RESULTS = [UpdatedFeature("group.version"), UpdatedFeature("share.version", ErrorCode.INVALID_REQUEST, "twice")]
_RESULTS_WIRE = [
    {"feature": "group.version", "error_code": 0, "error_message": None},
    {"feature": "share.version", "error_code": 42, "error_message": "twice"},
]

_OLDEST = Sample(
    UpdateFeatures(
        updates=[
            FeatureUpdate(feature="group.version", max_version_level=1),
            FeatureUpdate(feature="share.version", max_version_level=0, upgrade_type=UpgradeType.SAFE_DOWNGRADE),
        ],
        timeout_ms=31,
    ),
    {
        "timeout": 31,
        "feature_updates": [
            {"feature": "group.version", "max_version_level": 1, "allow_downgrade": False},
            {"feature": "share.version", "max_version_level": 0, "allow_downgrade": True},
        ],
    },
    UpdateFeaturesResult(throttle_ms=20, results=_RESULTS),
    {"throttle_time": 20, "error_code": 0, "error_message": None, "results": _RESULTS_WIRE},
)

_NEWER_REQUEST = UpdateFeatures(
    updates=[
        FeatureUpdate(feature="group.version", max_version_level=1),
        FeatureUpdate(feature="share.version", max_version_level=2, upgrade_type=UpgradeType.UNSAFE_DOWNGRADE),
    ],
    timeout_ms=32,
    validate_only=True,
)
_NEWER_WIRE = {
    "timeout": 32,
    "feature_updates": [
        {"feature": "group.version", "max_version_level": 1, "upgrade_type": 1},
        {"feature": "share.version", "max_version_level": 2, "upgrade_type": 3},
    ],
    "validate_only": True,
}

UPDATE_FEATURES = Sample(
    _NEWER_REQUEST,
    _NEWER_WIRE,
    UpdateFeaturesResult(throttle_ms=21, error=ErrorCode.INVALID_UPDATE_VERSION, error_message="no level 9"),
    _REFUSED,
    older=Sample(
        _NEWER_REQUEST,
        _NEWER_WIRE,
        UpdateFeaturesResult(throttle_ms=20, results=_RESULTS),
        {"throttle_time": 20, "error_code": 0, "error_message": None, "results": _RESULTS_WIRE},
        older=_OLDEST,
        older_until=0,
    ),
    older_until=1,
)
