"""The settings of a broker as keyword arguments, with their types; made by tools/typed_settings.py."""

from collections.abc import Sequence
from typing import TypedDict

from ..ports.values import Secret


class BrokerSettings(TypedDict, total=False):
    """The settings of a `Broker`, with underscores for dots."""

    add_partitions_to_txn_retry_backoff_max_ms: str | int | float | bool | None
    """No effect: transactions are those of version 1 (KIP-890)."""
    add_partitions_to_txn_retry_backoff_ms: str | int | float | bool | None
    """No effect: transactions are those of version 1 (KIP-890)."""
    advertised_listeners: str | Sequence[str] | None
    """What clients connect to, one for each of listeners; empty: the listeners."""
    allow_everyone_if_no_acl_found: bool | str | None
    """Whether everyone may use a resource that no ACL at all protects."""
    alter_log_dirs_replication_quota_window_num: str | int | float | bool | None
    """No effect: replicas do not move between the folders of a broker."""
    alter_log_dirs_replication_quota_window_size_seconds: str | int | float | bool | None
    """No effect: replicas do not move between the folders of a broker."""
    authorizer_class_name: str | int | float | bool | None
    """org.apache.kafka.metadata.authorizer.StandardAuthorizer checks every request by ACLs; another name is that of a
    plug-in (hook barnabas_authorizer). Empty: everyone may do everything."""
    auto_create_topics_enable: bool | str | None
    """Make a topic when a client asks for one that does not exist."""
    auto_create_topics_max_per_request: int | str | None
    """Ours. Maximum number of pending automatic topic creations."""
    auto_create_topics_max_per_second: int | str | None
    """Ours. Maximum rate of automatic topic creations per second."""
    auto_include_jmx_reporter: str | int | float | bool | None
    """No effect: metrics are those of metrics.listen."""
    auto_leader_rebalance_enable: bool | str | None
    """Whether the controller gives leaders back to the first replicas."""
    avro_validate_defaults: bool | str | None
    """As Confluent's registry has it: the registry beside the broker refuses Avro defaults of a wrong type."""
    background_threads: int | str | None
    """Workers for what may block: flushing, recovery, removing files."""
    broker_heartbeat_interval_ms: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    broker_id: int | str | None
    """The broker's number in its cluster; -1: a generated one."""
    broker_id_generation_enable: bool | str | None
    """Whether broker.id=-1 generates one."""
    broker_rack: str | int | float | bool | None
    """Where the broker stands; replicas spread over racks."""
    classic_allowed_addresses: str | Sequence[str] | None
    """The addresses and networks (10.0.0.0/8) whose clients may use a classic listener. Empty: all."""
    classic_allowed_subjects: str | Sequence[str] | None
    """The principals, by the client's certificate, that may use a classic listener (User:NAME). Empty: all."""
    classic_read_only: bool | str | None
    """Whether a classic listener refuses to produce."""
    classic_registration_enable: bool | str | None
    """Ours. Whether classic listeners and topics go into the registries."""
    compression_gzip_level: str | int | float | bool | None
    """No effect: the log does not need it."""
    compression_lz4_level: str | int | float | bool | None
    """No effect: the log does not need it."""
    compression_type: str | int | float | bool | None
    """The compression of stored batches; producer: as received."""
    compression_zstd_level: str | int | float | bool | None
    """No effect: the log does not need it."""
    connection_authentication_timeout_ms: int | str | None
    """Ours. The time that a new connection has to authenticate; then it is closed."""
    connection_failed_authentication_delay_ms: int | str | None
    """How long a failed authentication waits for its answer."""
    connections_max_idle_ms: int | str | None
    """Close a connection after this time without traffic; -1: never."""
    connections_max_reauth_ms: int | str | None
    """How long a SASL session lasts until the client must authenticate again; 0: without an end."""
    controlled_shutdown_enable: bool | str | None
    """Whether a broker hands on what it leads before it stops."""
    controlled_shutdown_max_retries: int | str | None
    """How often it tries again while it still leads some."""
    controlled_shutdown_retry_backoff_ms: int | str | None
    """How long it waits before that."""
    controller_listener_names: str | Sequence[str] | None
    """Listeners of these names are left out: brokers need no controllers."""
    controller_quorum_append_linger_ms: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    controller_quorum_auto_join_enable: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    controller_quorum_bootstrap_servers: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    controller_quorum_election_backoff_max_ms: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    controller_quorum_election_timeout_ms: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    controller_quorum_fetch_max_bytes: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    controller_quorum_fetch_snapshot_max_bytes: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    controller_quorum_fetch_timeout_ms: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    controller_quorum_request_timeout_ms: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    controller_quorum_retry_backoff_ms: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    controller_quorum_voters: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    controller_quota_window_num: int | str | None
    """The number of samples of a quota of controller mutations."""
    controller_quota_window_size_seconds: int | str | None
    """The time of one sample of controller mutations."""
    controller_socket_timeout_ms: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    cordoned_log_dirs: str | int | float | bool | None
    """No effect: the log does not need it."""
    default_replication_factor: int | str | None
    """Replicas of a topic made without a number."""
    delegation_token_expiry_check_interval_ms: int | str | None
    """How often expired delegation tokens are deleted."""
    delegation_token_expiry_time_ms: int | str | None
    """How long a delegation token lives without a renewal."""
    delegation_token_max_lifetime_ms: int | str | None
    """The longest life of a delegation token."""
    delegation_token_secret_key: str | Secret[str] | None
    """The secret that delegation tokens are made with, the same at all brokers; unset: there are no tokens."""
    delete_records_purgatory_purge_interval_requests: str | int | float | bool | None
    """No effect: one thread serves all requests, and other keys bound the waiting ones."""
    delete_topic_enable: bool | str | None
    """Whether topics can be deleted."""
    early_start_listeners: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    etcd_cacert: str | int | float | bool | None
    """Ours. The PEM file of the authorities that etcd's certificates may be of; implies TLS."""
    etcd_cert: str | int | float | bool | None
    """Ours. The PEM file of the certificate that etcd asks for; implies TLS."""
    etcd_insecure_transport: bool | str | None
    """Ours. false: connections to etcd use TLS with the authorities of the system; etcd.cacert and etcd.cert imply it.
    """
    etcd_key: str | int | float | bool | None
    """Ours. The PEM file of the key of etcd.cert."""
    etcd_password: str | Secret[str] | None
    """Ours. The password of etcd.user."""
    etcd_user: str | int | float | bool | None
    """Ours. The user at an etcd with authentication."""
    fetch_max_bytes: int | str | None
    """The most that one fetch answer carries."""
    fetch_purgatory_purge_interval_requests: str | int | float | bool | None
    """No effect: one thread serves all requests, and other keys bound the waiting ones."""
    follower_fetch_last_tiered_offset_enable: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    follower_replication_throttled_rate: int | str | None
    """Bytes a second that the broker fetches from leaders, of the replicas that topics name as throttled."""
    group_consumer_assignment_interval_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_consumer_assignors: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_consumer_heartbeat_interval_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_consumer_max_assignment_interval_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_consumer_max_heartbeat_interval_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_consumer_max_session_timeout_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_consumer_max_size: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_consumer_migration_policy: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_consumer_min_assignment_interval_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_consumer_min_heartbeat_interval_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_consumer_min_session_timeout_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_consumer_session_timeout_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_coordinator_append_linger_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_coordinator_background_threads: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_coordinator_cached_buffer_max_bytes: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_coordinator_rebalance_protocols: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_coordinator_threads: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_initial_rebalance_delay_ms: int | str | None
    """How long a new group waits for further members."""
    group_max_session_timeout_ms: int | str | None
    """The longest session that a member of a group may ask for."""
    group_max_size: int | str | None
    """The most members that a group may have."""
    group_min_session_timeout_ms: int | str | None
    """The shortest session that a member of a group may ask for."""
    group_share_assignment_interval_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_share_assignors: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_share_delivery_count_limit: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_share_heartbeat_interval_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_share_max_assignment_interval_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_share_max_delivery_count_limit: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_share_max_heartbeat_interval_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_share_max_partition_max_record_locks: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_share_max_record_lock_duration_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_share_max_session_timeout_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_share_max_share_sessions: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_share_max_size: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_share_min_assignment_interval_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_share_min_delivery_count_limit: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_share_min_heartbeat_interval_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_share_min_partition_max_record_locks: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_share_min_record_lock_duration_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_share_min_session_timeout_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_share_partition_max_record_locks: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_share_record_lock_duration_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_share_session_timeout_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_streams_assignment_interval_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_streams_heartbeat_interval_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_streams_initial_rebalance_delay_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_streams_max_assignment_interval_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_streams_max_heartbeat_interval_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_streams_max_session_timeout_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_streams_max_size: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_streams_max_standby_replicas: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_streams_min_assignment_interval_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_streams_min_heartbeat_interval_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_streams_min_session_timeout_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_streams_num_standby_replicas: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    group_streams_session_timeout_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    initial_broker_registration_timeout_ms: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    inter_broker_listener_name: str | int | float | bool | None
    """The listener that other brokers connect to, and the only one that takes fetches of followers; unset: the first
    one of kafka://."""
    inter_broker_protocol_version: str | int | float | bool | None
    """No effect: a follower fetches from each leader over one connection."""
    kafka_metrics_polling_interval_secs: str | int | float | bool | None
    """No effect: metrics are those of metrics.listen."""
    kafka_metrics_reporters: str | int | float | bool | None
    """No effect: metrics are those of metrics.listen."""
    leader_imbalance_check_interval_seconds: int | str | None
    """How often it looks whether to."""
    leader_imbalance_per_broker_percentage: int | str | None
    """It does so for brokers that do not lead more than this percentage of the partitions that they are first replica
    of."""
    leader_replication_throttled_rate: int | str | None
    """Bytes a second that the broker gives to followers, of the replicas that topics name as throttled."""
    listener_security_protocol_map: str | int | float | bool | None
    """NAME:PROTOCOL,...: protocols of listeners with other names than kafka and classic."""
    log_cleaner_backoff_ms: int | str | None
    """How often to look for logs that are due, when there were none."""
    log_cleaner_dedupe_buffer_size: int | str | None
    """Memory for the keys of logs that are being compacted, 24 bytes each; 1 MiB a thread at least is taken."""
    log_cleaner_delete_retention_ms: int | str | None
    """How long a compacted log keeps messages without value, which delete their keys, once it is clean there."""
    log_cleaner_enable: bool | str | None
    """Compact the logs of topics with cleanup.policy=compact, the broker's own too."""
    log_cleaner_io_buffer_load_factor: float | str | None
    """How full that memory may be; 0.1 to 0.95 is taken."""
    log_cleaner_io_buffer_size: int | str | None
    """Memory for reading what is compacted."""
    log_cleaner_io_max_bytes_per_second: float | str | None
    """Bytes that compaction may read and write in a second, all in all."""
    log_cleaner_max_compaction_lag_ms: int | str | None
    """Messages older than this are compacted, however few they are; segments are sealed at that age."""
    log_cleaner_min_cleanable_ratio: float | str | None
    """Compact a log when more than this share of it is not compacted yet."""
    log_cleaner_min_compaction_lag_ms: int | str | None
    """Messages younger than this are not compacted."""
    log_cleaner_threads: int | str | None
    """How many logs are compacted side by side; 0: none."""
    log_cleanup_policy: str | Sequence[str] | None
    """What becomes of old messages: `delete` by age or size, `compact` where the key came again, or both."""
    log_deletion_policy: str | int | float | bool | None
    """Ours. The policy that chooses what is removed: NAME, or NAME:PARAMETERS (docs/deletion-policies.md)."""
    log_dir: str | int | float | bool | None
    """The data folder, when log.dirs is not set."""
    log_dir_failure_timeout_ms: str | int | float | bool | None
    """No effect: the log does not need it."""
    log_dir_mode: str | int | float | bool | None
    """Ours. The permissions, in octal, of data folders and those in them when made."""
    log_dirs: str | Sequence[str] | None
    """The data folders; a new partition goes to the emptiest."""
    log_flush_interval_messages: int | str | None
    """Flush a log after this number of messages."""
    log_flush_interval_ms: int | str | None
    """Flush a log after this time."""
    log_flush_offset_checkpoint_interval_ms: int | str | None
    """How often to write down what is flushed."""
    log_flush_scheduler_interval_ms: int | str | None
    """Stands for log.flush.interval.ms where that is not set."""
    log_flush_start_offset_checkpoint_interval_ms: str | int | float | bool | None
    """No effect: the log does not need it."""
    log_index_interval_bytes: int | str | None
    """Bytes of log between two index entries."""
    log_index_size_max_bytes: int | str | None
    """The size of an index file."""
    log_initial_task_delay_ms: str | int | float | bool | None
    """No effect: the log does not need it."""
    log_local_retention_bytes: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    log_local_retention_ms: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    log_message_downconversion_enable: str | int | float | bool | None
    """No effect: the log does not need it."""
    log_message_format_version: str | int | float | bool | None
    """No effect: the log does not need it."""
    log_message_timestamp_after_max_ms: int | str | None
    """How far a message's time may lie after the broker's."""
    log_message_timestamp_before_max_ms: int | str | None
    """How far a message's time may lie before the broker's."""
    log_message_timestamp_type: str | int | float | bool | None
    """Whose clock dates a message."""
    log_preallocate: str | int | float | bool | None
    """No effect: the log does not need it."""
    log_retention_bytes: int | str | None
    """Keep so much of each partition; -1: all."""
    log_retention_check_interval_ms: int | str | None
    """How often to look for segments to remove."""
    log_retention_hours: int | str | None
    """The same in hours, when log.retention.minutes is not set either."""
    log_retention_minutes: int | str | None
    """The same in minutes, when log.retention.ms is not set."""
    log_retention_ms: int | str | None
    """Keep messages for this time; -1: without limit."""
    log_roll_hours: int | str | None
    """The same in hours, when log.roll.ms is not set."""
    log_roll_jitter_hours: int | str | None
    """The same in hours."""
    log_roll_jitter_ms: int | str | None
    """Take off up to so much, by chance."""
    log_roll_ms: int | str | None
    """Roll a new segment after this time."""
    log_scrub_interval_ms: int | str | None
    """Ours. How often each closed segment is read and compared with its checksums."""
    log_scrub_io_max_bytes_per_second: int | str | None
    """Ours. Bytes that this check reads in a second; requests come first. 0: only what a reader could not read."""
    log_segment_bytes: int | str | None
    """The size of a segment file."""
    log_segment_delete_delay_ms: int | str | None
    """How long a removed segment's file stays."""
    logging_format: str | int | float | bool | None
    """Ours. Of `barnabas serve`: how a line of its log looks."""
    logging_level: str | Sequence[str] | None
    """Ours. Of `barnabas serve`: LEVEL for all loggers, LOGGER=LEVEL for one."""
    max_connection_creation_rate: int | str | None
    """New connections per second, of the broker and of each listener; more wait."""
    max_connections: int | str | None
    """Connections at a time, of the broker and of each listener; more wait until one closes."""
    max_connections_per_ip: int | str | None
    """Connections from one address; more are closed at once."""
    max_connections_per_ip_overrides: str | Sequence[str] | None
    """ADDRESS:NUMBER,...: other limits for some addresses."""
    max_in_flight_requests_per_connection: int | str | None
    """Ours. Requests of one connection without an answer yet."""
    max_incremental_fetch_session_cache_slots: str | int | float | bool | None
    """No effect: one thread serves all requests, and other keys bound the waiting ones."""
    max_request_partition_size_limit: str | int | float | bool | None
    """No effect: one thread serves all requests, and other keys bound the waiting ones."""
    message_format: str | int | float | bool | None
    """Ours. The generation of topics made without one."""
    message_max_bytes: int | str | None
    """The largest record batch, header included."""
    metadata_log_dir: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    metadata_log_max_record_bytes_between_snapshots: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    metadata_log_max_snapshot_interval_ms: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    metadata_log_segment_bytes: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    metadata_log_segment_ms: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    metadata_max_idle_interval_ms: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    metadata_max_retention_bytes: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    metadata_max_retention_ms: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    metric_reporters: str | int | float | bool | None
    """No effect: metrics are those of metrics.listen."""
    metrics_authentication_users_file: str | int | float | bool | None
    """Ours. A file with lines NAME: PASSWORD of those who may see the metrics, by basic authentication."""
    metrics_listen: str | int | float | bool | None
    """Ours. HOST:PORT where Prometheus finds the metrics; https://HOST:PORT: with TLS (listener.name.metrics.ssl.* or
    ssl.*)."""
    metrics_num_samples: str | int | float | bool | None
    """No effect: metrics are those of metrics.listen."""
    metrics_recording_level: str | int | float | bool | None
    """No effect: metrics are those of metrics.listen."""
    metrics_sample_window_ms: str | int | float | bool | None
    """No effect: metrics are those of metrics.listen."""
    min_insync_replicas: int | str | None
    """With acks=all, how many replicas must have a message."""
    num_io_threads: str | int | float | bool | None
    """No effect: one thread serves all requests, and other keys bound the waiting ones."""
    num_network_threads: str | int | float | bool | None
    """No effect: one thread serves all requests, and other keys bound the waiting ones."""
    num_partitions: int | str | None
    """Partitions of a topic made without a number."""
    num_recovery_threads_per_data_dir: str | int | float | bool | None
    """No effect: one thread serves all requests, and other keys bound the waiting ones."""
    num_replica_alter_log_dirs_threads: str | int | float | bool | None
    """No effect: replicas do not move between the folders of a broker."""
    num_replica_fetchers: str | int | float | bool | None
    """No effect: a follower fetches from each leader over one connection."""
    offset_metadata_max_bytes: int | str | None
    """The longest text that may come with a committed offset."""
    offsets_commit_required_acks: str | int | float | bool | None
    """No effect: the log does not need it."""
    offsets_commit_timeout_ms: int | str | None
    """How long a commit may take to reach all in-sync replicas."""
    offsets_load_buffer_size: int | str | None
    """How much of __consumer_offsets is read at a time when it loads."""
    offsets_retention_check_interval_ms: int | str | None
    """How often to look for offsets that are old enough."""
    offsets_retention_minutes: int | str | None
    """How long committed offsets remain once their group is empty."""
    offsets_topic_compression_codec: str | int | float | bool | None
    """No effect: the log does not need it."""
    offsets_topic_num_partitions: int | str | None
    """Partitions of __consumer_offsets when it is made."""
    offsets_topic_replication_factor: int | str | None
    """Replicas of __consumer_offsets; or all live brokers."""
    offsets_topic_segment_bytes: int | str | None
    """The size of a segment file of __consumer_offsets."""
    org_apache_kafka_sasl_oauthbearer_allowed_files: str | Sequence[str] | None
    """The files that keys may be read from; a system property in Kafka."""
    org_apache_kafka_sasl_oauthbearer_allowed_urls: str | Sequence[str] | None
    """The URLs that keys may be read from; a system property in Kafka."""
    plugins_blocked: str | Sequence[str] | None
    """Ours. Names of plugins that are not loaded."""
    plugins_entry_points_enable: bool | str | None
    """Ours. Whether installed plugins are loaded."""
    plugins_modules: str | Sequence[str] | None
    """Ours. Python modules with plugins, besides installed ones."""
    principal_builder_class: str | int | float | bool | None
    """The plug-in that makes the principal of a connection (hook barnabas_principal_builder)."""
    process_roles: str | Sequence[str] | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    producer_id_expiration_check_interval_ms: int | str | None
    """How often to look for silent producers."""
    producer_id_expiration_ms: int | str | None
    """Forget an idempotent producer after this time without a batch."""
    producer_purgatory_purge_interval_requests: str | int | float | bool | None
    """No effect: one thread serves all requests, and other keys bound the waiting ones."""
    queued_max_request_bytes: int | str | None
    """The same for all connections together: who has more than an equal share is not read from; -1: no bound."""
    queued_max_requests: str | int | float | bool | None
    """No effect: one thread serves all requests, and other keys bound the waiting ones."""
    quota_window_num: int | str | None
    """The number of samples of a client quota."""
    quota_window_size_seconds: int | str | None
    """The time of one sample."""
    record_validation: bool | str | None
    """Ours. Open and check every record on append; off: of as many batches as cost little."""
    remote_fetch_max_wait_ms: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_list_offsets_request_timeout_ms: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_index_file_cache_total_size_bytes: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_manager_copier_thread_pool_size: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_manager_copy_max_bytes_per_second: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_manager_copy_quota_window_num: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_manager_copy_quota_window_size_seconds: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_manager_expiration_thread_pool_size: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_manager_fetch_max_bytes_per_second: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_manager_fetch_quota_window_num: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_manager_fetch_quota_window_size_seconds: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_manager_follower_thread_pool_size: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_manager_task_interval_ms: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_manager_thread_pool_size: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_metadata_custom_metadata_max_bytes: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_metadata_manager_class_name: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_metadata_manager_class_path: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_metadata_manager_impl_prefix: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_metadata_manager_listener_name: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_reader_max_pending_tasks: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_reader_threads: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_storage_manager_class_name: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_storage_manager_class_path: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_storage_manager_impl_prefix: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    remote_log_storage_system_enable: str | int | float | bool | None
    """No effect: there is no tiered storage."""
    replica_alter_log_dirs_io_max_bytes_per_second: str | int | float | bool | None
    """No effect: replicas do not move between the folders of a broker."""
    replica_fetch_backoff_ms: int | str | None
    """How long a follower waits after an error."""
    replica_fetch_max_bytes: int | str | None
    """How many bytes of one partition a follower fetches at a time."""
    replica_fetch_min_bytes: int | str | None
    """How many bytes a follower's fetch waits for."""
    replica_fetch_response_max_bytes: int | str | None
    """How many bytes in all a follower fetches at a time."""
    replica_fetch_wait_max_ms: int | str | None
    """How long a follower's fetch waits at the leader for messages."""
    replica_high_watermark_checkpoint_interval_ms: int | str | None
    """How often to write down high watermarks."""
    replica_lag_time_max_ms: int | str | None
    """A follower that has not caught up for this time leaves the ISR."""
    replica_selector_class: str | int | float | bool | None
    """The replica that consumers read from: a plugin, rack-aware (Kafka's RackAwareReplicaSelector) or leader; unset:
    the leader."""
    replica_socket_receive_buffer_bytes: str | int | float | bool | None
    """No effect: a follower fetches from each leader over one connection."""
    replica_socket_timeout_ms: int | str | None
    """How long a follower waits for an answer of its leader."""
    replication_quota_window_num: str | int | float | bool | None
    """No effect: a follower fetches from each leader over one connection."""
    replication_quota_window_size_seconds: str | int | float | bool | None
    """No effect: a follower fetches from each leader over one connection."""
    request_timeout_ms: str | int | float | bool | None
    """No effect: one thread serves all requests, and other keys bound the waiting ones."""
    reserved_broker_max_id: int | str | None
    """Generated numbers of brokers are larger."""
    sasl_enabled_mechanisms: str | Sequence[str] | None
    """The SASL mechanisms of listeners SASL_PLAINTEXT and SASL_SSL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER,
    GSSAPI."""
    sasl_jaas_config: str | Secret[str] | None
    """The login module of a listener's mechanism: MODULE required name="value" ...; in JAAS."""
    sasl_kerberos_kinit_cmd: str | int | float | bool | None
    """No effect: the Kerberos library renews tickets."""
    sasl_kerberos_min_time_before_relogin: str | int | float | bool | None
    """No effect: the Kerberos library renews tickets."""
    sasl_kerberos_principal_to_local_rules: str | Sequence[str] | None
    """`RULE:[COMPONENTS:FORM](PATTERN)s/PATTERN/REPLACEMENT/g/L`,...: users' names from Kerberos principals."""
    sasl_kerberos_service_name: str | int | float | bool | None
    """The Kerberos service of the brokers, usually kafka: the first part of their principals."""
    sasl_kerberos_ticket_renew_jitter: str | int | float | bool | None
    """No effect: the Kerberos library renews tickets."""
    sasl_kerberos_ticket_renew_window_factor: str | int | float | bool | None
    """No effect: the Kerberos library renews tickets."""
    sasl_login_callback_handler_class: str | int | float | bool | None
    """Accepted where it is Kafka's own class for OAUTHBEARER, whose work the broker does."""
    sasl_login_read_timeout_ms: int | str | None
    """The time that the broker waits for the answer of the token endpoint."""
    sasl_login_refresh_window_factor: float | str | None
    """The part of a token's lifetime after which the broker requests the next one."""
    sasl_mechanism_inter_broker_protocol: str | int | float | bool | None
    """The SASL mechanism of connections to other brokers."""
    sasl_oauthbearer_client_credentials_client_id: str | int | float | bool | None
    """The client id of the broker for the token endpoint; else the option clientId of the login module."""
    sasl_oauthbearer_client_credentials_client_secret: str | Secret[str] | None
    """The client secret of the broker; else the option clientSecret of the login module."""
    sasl_oauthbearer_clock_skew_seconds: int | str | None
    """The allowed difference of clocks for the times of a token."""
    sasl_oauthbearer_expected_audience: str | Sequence[str] | None
    """A token must be for one of these audiences; empty: for any."""
    sasl_oauthbearer_expected_issuer: str | int | float | bool | None
    """A token must be of this issuer; unset: of any that has a key."""
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int | str | None
    """The age at which the keys are read again."""
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int | str | None
    """The longest such pause, and the time until a token with an unknown key has them read again."""
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int | str | None
    """The first pause after a failed reading of the keys; it doubles."""
    sasl_oauthbearer_jwks_endpoint_url: str | int | float | bool | None
    """The keys that sign OAUTHBEARER tokens: https://... or file:///..., allowed by the two lists below."""
    sasl_oauthbearer_scope: str | int | float | bool | None
    """The scope to request; else the option scope of the login module."""
    sasl_oauthbearer_sub_claim_name: str | int | float | bool | None
    """The claim that names the principal."""
    sasl_oauthbearer_token_endpoint_url: str | int | float | bool | None
    """Where the broker requests OAUTHBEARER tokens for its connections to others: https://... or file:///...."""
    sasl_scram_bootstrap_users: str | Secret[str] | None
    """Ours. Users of a new cluster, which has none: SCRAM-SHA-512=[name=NAME,password=PASSWORD];..."""
    sasl_server_callback_handler_class: str | int | float | bool | None
    """The plug-in that checks user names and passwords of PLAIN (hook barnabas_authenticator)."""
    sasl_server_max_receive_size: int | str | None
    """The largest frame of a client that is not authenticated; a larger one closes its connection."""
    schema_registry_authentication_method: str | int | float | bool | None
    """Ours. authentication.method of Confluent's registry: BASIC, by user name and password, or NONE."""
    schema_registry_authentication_realm: str | int | float | bool | None
    """Ours. authentication.realm of Confluent's registry: the name that browsers show."""
    schema_registry_authentication_roles: str | Sequence[str] | None
    """Ours. authentication.roles of Confluent's registry: users with one of them may enter; *: all users."""
    schema_registry_authentication_users_file: str | int | float | bool | None
    """Ours. A file with lines NAME: PASSWORD[,ROLE...] of the registry's users."""
    schema_registry_command_config: str | int | float | bool | None
    """Ours. A file with the client settings of the registry beside the broker; unset: those of brokers among
    themselves."""
    schema_registry_listen: str | int | float | bool | None
    """Ours. Of `barnabas serve`: HOST:PORT of a schema registry beside it; https://HOST:PORT: with TLS
    (listener.name.registry.ssl.* or ssl.*)."""
    security_inter_broker_protocol: str | int | float | bool | None
    """Brokers connect to the first listener with this security protocol; unset: to the first one."""
    share_coordinator_append_linger_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    share_coordinator_cached_buffer_max_bytes: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    share_coordinator_load_buffer_size: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    share_coordinator_snapshot_update_records_per_snapshot: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    share_coordinator_state_topic_compression_codec: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    share_coordinator_state_topic_min_isr: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    share_coordinator_state_topic_num_partitions: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    share_coordinator_state_topic_replication_factor: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    share_coordinator_state_topic_segment_bytes: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    share_coordinator_threads: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    share_coordinator_write_timeout_ms: str | int | float | bool | None
    """No effect: there is one group protocol, the classic one, and one thread."""
    share_fetch_purgatory_purge_interval_requests: str | int | float | bool | None
    """No effect: one thread serves all requests, and other keys bound the waiting ones."""
    slow_request_threshold_ms: int | str | None
    """Ours. Log requests that take longer; -1: none."""
    socket_connection_setup_timeout_max_ms: str | int | float | bool | None
    """No effect: the operating system decides it, or there is no such limit."""
    socket_connection_setup_timeout_ms: str | int | float | bool | None
    """No effect: the operating system decides it, or there is no such limit."""
    socket_listen_backlog_size: str | int | float | bool | None
    """No effect: the operating system decides it, or there is no such limit."""
    socket_receive_buffer_bytes: str | int | float | bool | None
    """No effect: the operating system decides it, or there is no such limit."""
    socket_request_max_bytes: int | str | None
    """The largest request; a larger one closes its connection."""
    socket_send_buffer_bytes: str | int | float | bool | None
    """No effect: the operating system decides it, or there is no such limit."""
    socket_unsent_max_bytes: int | str | None
    """Ours. Reading from a connection pauses while this much of its requests and responses is in memory."""
    ssl_allow_dn_changes: bool | str | None
    """Whether a reloaded certificate may have another subject."""
    ssl_allow_san_changes: bool | str | None
    """Whether a reloaded certificate may lack names that the present one has."""
    ssl_cipher_suites: str | Sequence[str] | None
    """The cipher suites by Java's or OpenSSL's names; empty: its default."""
    ssl_client_auth: str | int | float | bool | None
    """Whether clients show a certificate: required, requested (they may), or none."""
    ssl_enabled_protocols: str | Sequence[str] | None
    """The versions of TLS that may be used."""
    ssl_endpoint_identification_algorithm: str | int | float | bool | None
    """https: other brokers' certificates must be for their hosts; none or empty: for any."""
    ssl_key_password: str | Secret[str] | None
    """The password of the private key."""
    ssl_keystore_certificate_chain: str | Secret[str] | None
    """The certificate, and those of its authorities, as PEM text, in place of a file."""
    ssl_keystore_key: str | Secret[str] | None
    """The private key as PEM text, in place of a file."""
    ssl_keystore_location: str | int | float | bool | None
    """The file of the listener's private key and certificate chain: PEM, or PKCS12 with the extra security."""
    ssl_keystore_password: str | Secret[str] | None
    """The password of the key store."""
    ssl_keystore_type: str | int | float | bool | None
    """PEM or PKCS12; the content of the file counts."""
    ssl_principal_mapping_rules: str | int | float | bool | None
    """RULE:PATTERN/REPLACEMENT/[L|U],...: the names of users from the subjects of their certificates."""
    ssl_protocol: str | int | float | bool | None
    """The highest version of TLS; ssl.enabled.protocols has those that may be used."""
    ssl_truststore_certificates: str | Secret[str] | None
    """The trusted authorities as PEM text, in place of a file."""
    ssl_truststore_location: str | int | float | bool | None
    """The file of the authorities whose certificates are trusted; unset: those of the system."""
    ssl_truststore_password: str | Secret[str] | None
    """The password of the trust store."""
    ssl_truststore_type: str | int | float | bool | None
    """PEM or PKCS12; the content of the file counts."""
    super_users: str | int | float | bool | None
    """The principals that may do everything, separated by semicolons: User:admin;User:CN=broker1."""
    telemetry_max_bytes: str | int | float | bool | None
    """No effect: metrics are those of metrics.listen."""
    topic_flush_intervals_ms: str | int | float | bool | None
    """log.flush.interval.ms of single classic topics: TOPIC:MS,..."""
    topic_log_file_size: str | int | float | bool | None
    """log.segment.bytes of single classic topics: TOPIC:BYTES,..."""
    topic_log_retention_hours: str | int | float | bool | None
    """log.retention.hours of single classic topics: TOPIC:HOURS,..."""
    topic_log_retention_size: str | int | float | bool | None
    """log.retention.bytes of single classic topics: TOPIC:BYTES,..."""
    topic_log_roll_hours: str | int | float | bool | None
    """log.roll.hours of single classic topics: TOPIC:HOURS,..."""
    topic_partition_count_map: str | int | float | bool | None
    """Partitions of single classic topics: TOPIC:NUMBER,..."""
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int | str | None
    """How often to look for transactions that have lasted too long, to abort them."""
    transaction_max_timeout_ms: int | str | None
    """The longest transaction that a producer may ask for."""
    transaction_partition_verification_enable: bool | str | None
    """Whether a leader asks the coordinator if a partition belongs to the transaction that is written there."""
    transaction_remove_expired_transaction_cleanup_interval_ms: int | str | None
    """How often to look for transactional ids to forget."""
    transaction_state_log_load_buffer_size: int | str | None
    """How much of __transaction_state is read at a time when it loads."""
    transaction_state_log_min_isr: int | str | None
    """min.insync.replicas of __transaction_state when it is made."""
    transaction_state_log_num_partitions: int | str | None
    """Partitions of __transaction_state when it is made."""
    transaction_state_log_replication_factor: int | str | None
    """Replicas of __transaction_state; or all live brokers."""
    transaction_state_log_segment_bytes: int | str | None
    """The size of a segment file of __transaction_state."""
    transaction_two_phase_commit_enable: str | int | float | bool | None
    """No effect: transactions are those of version 1 (KIP-890)."""
    transactional_id_expiration_ms: int | str | None
    """Forget a transactional id that is unused for this time."""
    unclean_leader_election_enable: bool | str | None
    """Whether a replica that was not in sync may lead when no other is left; messages are lost."""
    zookeeper_clientCnxnSocket: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    zookeeper_connection_timeout_ms: int | str | None
    """How long to wait for the first connection; unset: a session."""
    zookeeper_max_in_flight_requests: str | int | float | bool | None
    """No effect: brokers use the coordination service, not KRaft controllers."""
    zookeeper_sasl_client_username: str | int | float | bool | None
    """The Kerberos service of ZooKeeper; a system property in Kafka."""
    zookeeper_sasl_jaas_config: str | Secret[str] | None
    """Ours. The login at ZooKeeper, as a JAAS file has it in Client: DigestLoginModule required username="USER"
    password="PASSWORD"; for the user of brokers."""
    zookeeper_session_timeout_ms: int | str | None
    """The session with ZooKeeper or etcd ends after so much silence; others lead then."""
    zookeeper_set_acl: bool | str | None
    """Whether new nodes in ZooKeeper belong to who makes them: others may read them, but no secrets."""
    zookeeper_ssl_cipher_suites: str | Sequence[str] | None
    """The cipher suites by Java's or OpenSSL's names; empty: its default."""
    zookeeper_ssl_client_enable: bool | str | None
    """Whether connections to ZooKeeper use TLS."""
    zookeeper_ssl_crl_enable: str | int | float | bool | None
    """No effect: revoked certificates of ZooKeeper are not looked for."""
    zookeeper_ssl_enabled_protocols: str | Sequence[str] | None
    """The versions of TLS that may be used."""
    zookeeper_ssl_endpoint_identification_algorithm: str | int | float | bool | None
    """HTTPS: ZooKeeper's certificates must be for its hosts; none or empty: for any."""
    zookeeper_ssl_keystore_location: str | int | float | bool | None
    """The file of the key and certificate that ZooKeeper asks for."""
    zookeeper_ssl_keystore_password: str | Secret[str] | None
    """The password of that key store, and of its key."""
    zookeeper_ssl_keystore_type: str | int | float | bool | None
    """PEM or PKCS12; the content of the file counts."""
    zookeeper_ssl_ocsp_enable: str | int | float | bool | None
    """No effect: revoked certificates of ZooKeeper are not looked for."""
    zookeeper_ssl_protocol: str | int | float | bool | None
    """The highest version of TLS."""
    zookeeper_ssl_truststore_location: str | int | float | bool | None
    """The file of the authorities that ZooKeeper's certificates may be of; unset: those of the system."""
    zookeeper_ssl_truststore_password: str | Secret[str] | None
    """The password of that trust store."""
    zookeeper_ssl_truststore_type: str | int | float | bool | None
    """PEM or PKCS12; the content of the file counts."""
