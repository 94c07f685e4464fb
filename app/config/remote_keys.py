"""The keys of tiered storage (KIP-405), and the rules for those of a topic."""

import re
from collections.abc import Mapping

from ...core.log.config import LogConfig
from ...ports.errors import ConfigError
from ...ports.remote_storage import PAYLOAD_CHECKSUMS
from ...ports.values import Secret
from .key_table import key_table
from .keys import LONG_MAX, flag_key, int_key, long_key, password_key, text_key

_SETTINGS = {
    "rsm.config.access.key.id": "access.key.id",
    "rsm.config.endpoint": "endpoint",
    "rsm.config.payload.checksum": "payload.checksum",
    "rsm.config.region": "region",
    "rsm.config.secret.access.key": "secret.access.key",
    "rsm.config.session.token": "session.token",
    "rsm.config.virtual.hosted.style": "virtual.hosted.style",
}
"""Key → the name by which the remote storage gets its value."""


@key_table
class RemoteKeys:
    """A part of the table; see `BrokerConfig`."""

    remote_log_storage_system_enable: bool = flag_key(
        "remote.log.storage.system.enable", False, doc="Whether topics may keep closed segments in remote storage."
    )
    remote_log_storage_manager_class_name: str | None = text_key(
        "remote.log.storage.manager.class.name",
        None,
        doc="The URL of the remote storage: s3://BUCKET/PREFIX, file:///PATH, or one of a plug-in.",
    )
    remote_log_manager_task_interval_ms: int = long_key(
        "remote.log.manager.task.interval.ms",
        30_000,
        1,
        doc="How often a leader looks for segments to copy to remote storage or to delete there.",
    )
    remote_log_manager_copier_thread_pool_size: int = int_key(
        "remote.log.manager.copier.thread.pool.size",
        10,
        1,
        doc="The number of threads that copy segments to remote storage and delete them there.",
    )
    remote_log_reader_threads: int = int_key(
        "remote.log.reader.threads", 10, 1, doc="The number of threads that read from remote storage."
    )
    remote_log_reader_max_pending_tasks: int = int_key(
        "remote.log.reader.max.pending.tasks",
        100,
        1,
        doc="The maximum number of pending reads of remote storage. Further ones are refused.",
    )
    remote_log_index_file_cache_total_size_bytes: int = long_key(
        "remote.log.index.file.cache.total.size.bytes",
        1_073_741_824,
        1,
        doc="The memory for cached indexes of remote segments; Kafka keeps these on disk.",
    )
    remote_fetch_max_wait_ms: int = int_key(
        "remote.fetch.max.wait.ms",
        500,
        1,
        doc="The maximum time that a fetch waits for remote storage. Data that arrive later are served to the next "
        "fetch.",
    )
    remote_list_offsets_request_timeout_ms: int = long_key(
        "remote.list.offsets.request.timeout.ms",
        30_000,
        1,
        doc="The maximum time that ListOffsets by timestamp waits for remote storage. The partition gets "
        "REQUEST_TIMED_OUT (7) then.",
    )
    follower_fetch_last_tiered_offset_enable: bool = flag_key(
        "follower.fetch.last.tiered.offset.enable",
        False,
        doc="Whether a new follower begins at the last tiered offset, not at the first offset in the leader's local "
        "log (KIP-1023).",
        dynamic=True,
    )
    remote_log_manager_copy_max_bytes_per_second: int = long_key(
        "remote.log.manager.copy.max.bytes.per.second",
        LONG_MAX,
        1,
        doc="The maximum number of bytes per second that this broker copies to remote storage.",
    )
    remote_log_manager_fetch_max_bytes_per_second: int = long_key(
        "remote.log.manager.fetch.max.bytes.per.second",
        LONG_MAX,
        1,
        doc="The maximum number of bytes per second that this broker reads from remote storage.",
    )
    log_local_retention_ms: int = long_key(
        "log.local.retention.ms",
        -2,
        -2,
        doc="How long a segment that is in remote storage stays on the broker's disk, too; -2: as log.retention.ms.",
        dynamic=True,
    )
    log_local_retention_bytes: int = long_key(
        "log.local.retention.bytes",
        -2,
        -2,
        doc="The number of bytes of a partition in remote storage that stay on the broker's disk, too; -2: as "
        "log.retention.bytes.",
        dynamic=True,
    )
    rsm_config_access_key_id: str | None = text_key(
        "rsm.config.access.key.id",
        None,
        doc="Ours. For s3://: the access key; unset: from the environment or the machine's role.",
    )
    rsm_config_secret_access_key: Secret[str] | None = password_key(
        "rsm.config.secret.access.key", doc="Ours. For s3://: the secret access key."
    )
    rsm_config_session_token: Secret[str] | None = password_key(
        "rsm.config.session.token", doc="Ours. For s3://: the session token of temporary credentials."
    )
    rsm_config_endpoint: str | None = text_key(
        "rsm.config.endpoint", None, doc="Ours. For s3://: http[s]://HOST:PORT of an S3-compatible store."
    )
    rsm_config_payload_checksum: str | None = text_key(
        "rsm.config.payload.checksum",
        None,
        PAYLOAD_CHECKSUMS,
        doc="Ours. For s3://: the checksum that the store verifies in each upload; unset: crc64nvme with HTTPS, "
        "sha256 with HTTP.",
    )
    rsm_config_region: str | None = text_key(
        "rsm.config.region", None, doc="Ours. For s3://: the region of the bucket."
    )
    rsm_config_virtual_hosted_style: bool | None = flag_key(
        "rsm.config.virtual.hosted.style",
        False,
        doc="Ours. For s3://: whether the bucket is part of the host name (virtual-hosted style).",
    )

    @property
    def remote_settings(self) -> Mapping[str, str]:
        """The settings of the remote storage, without the prefix of their keys."""
        found = {name: getattr(self, key.replace(".", "_")) for key, name in _SETTINGS.items()}
        return {
            name: value.value if isinstance(value, Secret) else "true" if value is True else str(value)
            for name, value in found.items()
            if value is not None and value is not False
        }

    def check_remote_storage(self) -> None:
        """Raise `ConfigError` if tiered storage is enabled without the URL of a remote storage."""
        if self.remote_log_storage_system_enable and not self.remote_log_storage_manager_class_name:
            text = "remote.log.storage.system.enable=true needs remote.log.storage.manager.class.name"
            raise ConfigError(f"{text}, such as s3://BUCKET/PREFIX or file:///PATH")


def check_tiered_topic(config: LogConfig, *, is_system_enabled: bool) -> None:
    """Raise `ConfigError` if a topic may not have this configuration."""
    if config.remote_storage_source:
        _check_source(config, is_system_enabled=is_system_enabled)
    if not config.remote_storage_enable:
        return
    if not is_system_enabled:
        text = "this broker has no remote storage (remote.log.storage.system.enable)"
        raise ConfigError(f"remote.storage.enable=true: {text}")
    if "compact" in config.cleanup_policy:
        raise ConfigError("remote.storage.enable=true: remote storage supports only topics with cleanup.policy=delete")
    if config.mirror_source:
        raise ConfigError("remote.storage.enable=true: a mirror may be cut as its source is; enable it once promoted")
    if config.message_format != "v2":
        raise ConfigError("remote.storage.enable=true: classic topics cannot be in remote storage")
    for name, local, whole in (
        ("ms", config.local_retention_ms, config.retention_ms),
        ("bytes", config.local_retention_bytes, config.retention_bytes),
    ):
        if local != _AS_RETENTION and whole != -1 and (local == -1 or local > whole):
            raise ConfigError(f"local.retention.{name}={local} is more than retention.{name}={whole}")
        if config.remote_log_copy_disable and local not in (_AS_RETENTION, whole):
            text = f"local.retention.{name} must be -2 or equal to retention.{name}={whole}, as nothing more is copied"
            raise ConfigError(f"remote.log.copy.disable=true: {text}")


def _check_source(config: LogConfig, *, is_system_enabled: bool) -> None:
    what = f"remote.storage.source={config.remote_storage_source}"
    if not _TOPIC_FOLDER.fullmatch(config.remote_storage_source):
        raise ConfigError(f"{what}: expected the folder of a topic in remote storage, NAME-ID")
    if not is_system_enabled:
        raise ConfigError(f"{what}: this broker has no remote storage (remote.log.storage.system.enable)")
    if config.remote_storage_enable:
        raise ConfigError(f"{what}: a read-only topic is not copied; remove remote.storage.enable")
    if config.mirror_source or config.message_format != "v2" or "compact" in config.cleanup_policy:
        raise ConfigError(f"{what}: a read-only topic can be neither a mirror, nor classic, nor compacted")


def check_tiering_change(before: LogConfig, after: LogConfig) -> None:
    """Raise `ConfigError` if remote storage may not be taken from a topic in this way."""
    if before.remote_storage_source != after.remote_storage_source:
        raise ConfigError("remote.storage.source cannot change; create a topic with it, or delete the one that has it")
    if before.remote_storage_enable and not after.remote_storage_enable and not after.remote_log_delete_on_disable:
        raise ConfigError(
            "remote.storage.enable=false deletes what is in remote storage: set remote.log.delete.on.disable=true, too;"
            " or keep it and set remote.log.copy.disable=true, which leaves it readable"
        )


_TOPIC_FOLDER = re.compile(r"[a-zA-Z0-9._-]{1,249}-[A-Za-z0-9_-]{22}")
_AS_RETENTION = -2
