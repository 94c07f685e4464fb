"""The features of a cluster (KIP-584, KIP-1022): what this version supports, and the finalized level of each.

A finalized level says what all brokers may do from now on, such as records in a form that earlier versions cannot read.
The levels are one node of the coordination tree. A new cluster begins with the newest ones; a cluster that an earlier
version has made has no such node, and every feature at the level 0, until UpdateFeatures changes it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ...ports.broker_api.features import (
    FeatureMetadata,
    FeatureUpdate,
    FinalizedVersionRange,
    SupportedVersionRange,
    UpgradeType,
)
from ...ports.coordination import (
    BadVersion,
    Coordination,
    CoordinationError,
    CreateNode,
    NodeChange,
    NodeExists,
    NoNode,
    SetNode,
)
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.values import frozen
from . import layout
from .topics import BrokerRegistration

GROUP_VERSION = "group.version"
"""1: consumer groups by KIP-848."""
SHARE_VERSION = "share.version"
"""1: share groups (KIP-932); 2: with dead-letter topics (KIP-1191)."""
TRANSACTION_VERSION = "transaction.version"
"""1: flexible records in `__transaction_state`; 2: the epoch is raised with each transaction (KIP-890)."""

SUPPORTED: dict[str, SupportedVersionRange] = {
    GROUP_VERSION: SupportedVersionRange(0, 1),
    SHARE_VERSION: SupportedVersionRange(0, 2),
    TRANSACTION_VERSION: SupportedVersionRange(0, 2),
}
"""The levels that this version supports. A new cluster begins with the largest ones."""

ATTEMPTS = 20


@frozen(kw_only=True)
class FeaturesImage:
    """The finalized levels, as a broker knows them."""

    levels: Mapping[str, int] = {}
    """The level of each feature that is not at 0."""
    epoch: int = 0
    """The number of changes of the levels, FinalizedFeaturesEpoch in ApiVersions."""

    def level(self, name: str) -> int:
        """Return the finalized level of a feature; 0 where there is none."""
        return self.levels.get(name, 0)


def newest_levels() -> dict[str, int]:
    """Return the levels with which a new cluster begins."""
    return {name: each.max_version for name, each in SUPPORTED.items() if each.max_version > 0}


def offered() -> dict[str, SupportedVersionRange]:
    """Return what this version supports, as brokers register it: without features that stay at the level 0."""
    return {name: each for name, each in SUPPORTED.items() if each.max_version > 0}


class FeatureMetadataCache:
    """Returns what ApiVersions says of the features: one object until the image changes."""

    def __init__(self, image: Callable[[], FeaturesImage]) -> None:
        self._image = image
        self._described = image()
        self._metadata = feature_metadata(self._described)

    def __call__(self) -> FeatureMetadata:
        """Return the metadata of the newest image."""
        image = self._image()
        if image is not self._described:
            self._described, self._metadata = image, feature_metadata(image)
        return self._metadata


def feature_metadata(image: FeaturesImage) -> FeatureMetadata:
    """Return what ApiVersions says of the features."""
    return FeatureMetadata(
        supported=offered(),
        finalized={name: FinalizedVersionRange(level, level) for name, level in image.levels.items()},
        finalized_epoch=image.epoch,
    )


def why_unsupported(image: FeaturesImage) -> str | None:
    """Return why this version must not take part in a cluster with these levels; None: it may."""
    for name, level in sorted(image.levels.items()):
        reason = _why_unsupported(level, SUPPORTED.get(name))
        if reason is not None:
            text = f"the cluster has finalized feature {name} at level {level}, but this broker {reason}"
            return f"{text}: start it with the version of Barnabas that the other brokers have, or a later one"
    return None


def _why_unsupported(level: int, supported: SupportedVersionRange | None) -> str | None:
    if supported is None or supported.max_version == 0:
        return None if level == 0 else "does not support this feature"
    if level in supported:
        return None
    return f"only supports versions {supported.min_version}-{supported.max_version}"


def updated_levels(
    levels: Mapping[str, int], updates: Sequence[FeatureUpdate], brokers: Iterable[BrokerRegistration]
) -> dict[str, int]:
    """Return the levels after these updates, by the rules of Kafka's `FeatureControlManager`.

    Raises `ApiError(INVALID_UPDATE_VERSION)` for a level that this broker or one of `brokers` does not support, and for
    a downgrade that is not asked for as one.
    """
    others = sorted(brokers, key=lambda each: each.broker_id)
    after = dict(levels)
    for update in {each.feature: each for each in updates}.values():  # of a feature that is named twice the last one
        reason = _why_refused(levels.get(update.feature, 0), update, others)
        if reason is not None:
            text = f"Invalid update version {update.max_version_level} for feature {update.feature}. {reason}"
            text = f"The update failed for all features since the following feature had an error: {text}"
            raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, text)
        after[update.feature] = update.max_version_level
    return {name: level for name, level in after.items() if level > 0}


def _why_refused(level: int, update: FeatureUpdate, brokers: Sequence[BrokerRegistration]) -> str | None:
    """Return why the feature cannot go from `level` to that of the update; None: it can."""
    wanted = update.max_version_level
    if update.upgrade_type not in tuple(UpgradeType):
        return "The controller does not support the given upgrade type."
    if wanted < 0:
        return "A feature version cannot be less than 0."
    reason = _why_unsupported(wanted, SUPPORTED.get(update.feature))
    if reason is None and update.feature not in offered():
        reason = "does not support this feature"
    if reason is not None:
        return f"This broker {reason}."
    for broker in brokers:
        reason = _why_unsupported(wanted, broker.features.get(update.feature))
        if reason is not None:
            return f"Broker {broker.broker_id} {reason}."
    if wanted < level and update.upgrade_type == UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
            " downgrade."
        )
    if wanted > level and update.upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    return None


# --- the node in the tree; these functions may block on the network


def read_features(coordination: Coordination, report: Callable[[str], None]) -> FeaturesImage | None:
    """Return the finalized levels in the tree; None: the node is unreadable, which is reported."""
    try:
        return _features_in(coordination)
    except ValueError as error:
        report(f"ignored {layout.FEATURES}, which does not hold the levels of features: {error}")
        return None


def _features_in(coordination: Coordination) -> FeaturesImage:
    try:
        node = coordination.get(layout.FEATURES)
    except NoNode:
        return FeaturesImage()
    return FeaturesImage(levels=layout.decode_features(node.data), epoch=node.version + 1)


def update_features(
    coordination: Coordination,
    updates: Sequence[FeatureUpdate],
    brokers: Callable[[], Iterable[BrokerRegistration]],
    *,
    validate_only: bool,
) -> FeaturesImage:
    """Change the levels in the tree by compare-and-set, unless `validate_only`, and return them.

    `brokers` reads the registrations of the live brokers. Raises as `updated_levels`, and `CoordinationError`.
    """
    for _ in range(ATTEMPTS):
        coordination.heartbeat()  # what is read from now on is not older than now
        try:
            image = _features_in(coordination)
        except ValueError as error:
            raise CoordinationError(f"{layout.FEATURES} does not hold the levels of features: {error}") from error
        levels = updated_levels(image.levels, updates, brokers())
        if validate_only or levels == image.levels:
            return image
        try:
            coordination.commit([_write(image, levels), *_marked(coordination, levels)])
        except (BadVersion, NodeExists, NoNode):
            continue  # another broker was quicker
        return FeaturesImage(levels=levels, epoch=image.epoch + 1)
    raise CoordinationError(f"others change {layout.FEATURES} as often as it is tried")


def _write(image: FeaturesImage, levels: Mapping[str, int]) -> NodeChange:
    data = layout.encode_features(levels)
    return CreateNode(layout.FEATURES, data) if image.epoch == 0 else SetNode(layout.FEATURES, data, image.epoch - 1)


def _marked(coordination: Coordination, levels: Mapping[str, int]) -> list[NodeChange]:
    """Return the change of the cluster id's node that keeps brokers of Barnabas 0.2 out while a level is finalized:
    they do not know the node of the features."""
    node = coordination.get(layout.CLUSTER_ID)
    data = layout.encode_cluster_id(layout.decode_cluster_id(node.data), has_features=bool(levels))
    return [] if data == node.data else [SetNode(layout.CLUSTER_ID, data, node.version)]
