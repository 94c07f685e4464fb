"""The settings of a broker as keyword arguments, with their types; made by tools/typed_settings.py."""

from collections.abc import Sequence
from typing import TypedDict

from ..ports.values import Secret


class BrokerKeywords(TypedDict, total=False):
    """The settings of a `Broker`, with underscores for dots."""

    add_partitions_to_txn_retry_backoff_max_ms: str | None
    add_partitions_to_txn_retry_backoff_ms: str | None
    advertised_listeners: str | Sequence[str] | None
    allow_everyone_if_no_acl_found: bool | str | None
    alter_log_dirs_replication_quota_window_num: str | None
    alter_log_dirs_replication_quota_window_size_seconds: str | None
    authorizer_class_name: str | None
    auto_create_topics_enable: bool | str | None
    auto_create_topics_max_per_request: int | str | None
    auto_create_topics_max_per_second: int | str | None
    auto_include_jmx_reporter: str | None
    auto_leader_rebalance_enable: bool | str | None
    avro_validate_defaults: bool | str | None
    background_threads: int | str | None
    broker_heartbeat_interval_ms: str | None
    broker_id: int | str | None
    broker_id_generation_enable: bool | str | None
    broker_machine: str | None
    broker_rack: str | None
    classic_allowed_addresses: str | Sequence[str] | None
    classic_allowed_subjects: str | Sequence[str] | None
    classic_read_only: bool | str | None
    classic_registration_enable: bool | str | None
    compression_gzip_level: str | None
    compression_lz4_level: str | None
    compression_type: str | None
    compression_zstd_level: str | None
    connection_authentication_timeout_ms: int | str | None
    connection_failed_authentication_delay_ms: int | str | None
    connections_max_idle_ms: int | str | None
    connections_max_reauth_ms: int | str | None
    console_listen: str | None
    controlled_shutdown_enable: bool | str | None
    controlled_shutdown_max_retries: int | str | None
    controlled_shutdown_retry_backoff_ms: int | str | None
    controller_listener_names: str | Sequence[str] | None
    controller_quorum_append_linger_ms: str | None
    controller_quorum_auto_join_enable: str | None
    controller_quorum_bootstrap_servers: str | None
    controller_quorum_election_backoff_max_ms: str | None
    controller_quorum_election_timeout_ms: str | None
    controller_quorum_fetch_max_bytes: str | None
    controller_quorum_fetch_snapshot_max_bytes: str | None
    controller_quorum_fetch_timeout_ms: str | None
    controller_quorum_request_timeout_ms: str | None
    controller_quorum_retry_backoff_ms: str | None
    controller_quorum_voters: str | None
    controller_quota_window_num: int | str | None
    controller_quota_window_size_seconds: int | str | None
    controller_socket_timeout_ms: str | None
    cordoned_log_dirs: str | Sequence[str] | None
    default_replication_factor: int | str | None
    delegation_token_expiry_check_interval_ms: int | str | None
    delegation_token_expiry_time_ms: int | str | None
    delegation_token_max_lifetime_ms: int | str | None
    delegation_token_secret_key: str | Secret[str] | None
    delete_records_purgatory_purge_interval_requests: str | None
    delete_topic_enable: bool | str | None
    early_start_listeners: str | None
    errors_deadletterqueue_auto_create_topics_enable: bool | str | None
    errors_deadletterqueue_topic_name_prefix: str | None
    etcd_cacert: str | None
    etcd_cert: str | None
    etcd_insecure_transport: bool | str | None
    etcd_key: str | None
    etcd_password: str | Secret[str] | None
    etcd_user: str | None
    fetch_max_bytes: int | str | None
    fetch_purgatory_purge_interval_requests: str | None
    follower_fetch_last_tiered_offset_enable: bool | str | None
    follower_replication_throttled_rate: int | str | None
    group_consumer_assignment_interval_ms: int | str | None
    group_consumer_assignors: str | Sequence[str] | None
    group_consumer_heartbeat_interval_ms: int | str | None
    group_consumer_max_assignment_interval_ms: int | str | None
    group_consumer_max_heartbeat_interval_ms: int | str | None
    group_consumer_max_session_timeout_ms: int | str | None
    group_consumer_max_size: int | str | None
    group_consumer_migration_policy: str | None
    group_consumer_min_assignment_interval_ms: int | str | None
    group_consumer_min_heartbeat_interval_ms: int | str | None
    group_consumer_min_session_timeout_ms: int | str | None
    group_consumer_regex_refresh_interval_ms: int | str | None
    group_consumer_session_timeout_ms: int | str | None
    group_coordinator_append_linger_ms: str | None
    group_coordinator_background_threads: str | None
    group_coordinator_cached_buffer_max_bytes: str | None
    group_coordinator_rebalance_protocols: str | Sequence[str] | None
    group_coordinator_threads: str | None
    group_initial_rebalance_delay_ms: int | str | None
    group_max_session_timeout_ms: int | str | None
    group_max_size: int | str | None
    group_min_session_timeout_ms: int | str | None
    group_share_assignment_interval_ms: int | str | None
    group_share_assignors: str | Sequence[str] | None
    group_share_delivery_count_limit: int | str | None
    group_share_heartbeat_interval_ms: int | str | None
    group_share_max_assignment_interval_ms: int | str | None
    group_share_max_delivery_count_limit: int | str | None
    group_share_max_heartbeat_interval_ms: int | str | None
    group_share_max_partition_max_record_locks: int | str | None
    group_share_max_record_lock_duration_ms: int | str | None
    group_share_max_session_timeout_ms: int | str | None
    group_share_max_share_sessions: int | str | None
    group_share_max_size: int | str | None
    group_share_min_assignment_interval_ms: int | str | None
    group_share_min_delivery_count_limit: int | str | None
    group_share_min_heartbeat_interval_ms: int | str | None
    group_share_min_partition_max_record_locks: int | str | None
    group_share_min_record_lock_duration_ms: int | str | None
    group_share_min_session_timeout_ms: int | str | None
    group_share_partition_max_record_locks: int | str | None
    group_share_record_lock_duration_ms: int | str | None
    group_share_session_timeout_ms: int | str | None
    group_streams_assignment_interval_ms: str | None
    group_streams_heartbeat_interval_ms: str | None
    group_streams_initial_rebalance_delay_ms: str | None
    group_streams_max_assignment_interval_ms: str | None
    group_streams_max_heartbeat_interval_ms: str | None
    group_streams_max_session_timeout_ms: str | None
    group_streams_max_size: str | None
    group_streams_max_standby_replicas: str | None
    group_streams_min_assignment_interval_ms: str | None
    group_streams_min_heartbeat_interval_ms: str | None
    group_streams_min_session_timeout_ms: str | None
    group_streams_num_standby_replicas: str | None
    group_streams_session_timeout_ms: str | None
    initial_broker_registration_timeout_ms: str | None
    inter_broker_listener_name: str | None
    inter_broker_protocol_version: str | None
    kafka_metrics_polling_interval_secs: str | None
    kafka_metrics_reporters: str | None
    leader_imbalance_check_interval_seconds: int | str | None
    leader_imbalance_per_broker_percentage: int | str | None
    leader_replication_throttled_rate: int | str | None
    listener_security_protocol_map: str | None
    log_cleaner_backoff_ms: int | str | None
    log_cleaner_dedupe_buffer_size: int | str | None
    log_cleaner_delete_retention_ms: int | str | None
    log_cleaner_enable: bool | str | None
    log_cleaner_io_buffer_load_factor: float | str | None
    log_cleaner_io_buffer_size: int | str | None
    log_cleaner_io_max_bytes_per_second: float | str | None
    log_cleaner_max_compaction_lag_ms: int | str | None
    log_cleaner_min_cleanable_ratio: float | str | None
    log_cleaner_min_compaction_lag_ms: int | str | None
    log_cleaner_threads: int | str | None
    log_cleanup_policy: str | Sequence[str] | None
    log_deletion_policy: str | None
    log_dir: str | None
    log_dir_failure_timeout_ms: str | None
    log_dir_mode: str | None
    log_dirs: str | Sequence[str] | None
    log_flush_interval_messages: int | str | None
    log_flush_interval_ms: int | str | None
    log_flush_offset_checkpoint_interval_ms: int | str | None
    log_flush_scheduler_interval_ms: int | str | None
    log_flush_start_offset_checkpoint_interval_ms: str | None
    log_index_interval_bytes: int | str | None
    log_index_size_max_bytes: int | str | None
    log_initial_task_delay_ms: str | None
    log_local_retention_bytes: int | str | None
    log_local_retention_ms: int | str | None
    log_message_downconversion_enable: str | None
    log_message_format_version: str | None
    log_message_timestamp_after_max_ms: int | str | None
    log_message_timestamp_before_max_ms: int | str | None
    log_message_timestamp_type: str | None
    log_preallocate: str | None
    log_retention_bytes: int | str | None
    log_retention_check_interval_ms: int | str | None
    log_retention_hours: int | str | None
    log_retention_minutes: int | str | None
    log_retention_ms: int | str | None
    log_roll_hours: int | str | None
    log_roll_jitter_hours: int | str | None
    log_roll_jitter_ms: int | str | None
    log_roll_ms: int | str | None
    log_scrub_interval_ms: int | str | None
    log_scrub_io_max_bytes_per_second: int | str | None
    log_segment_bytes: int | str | None
    log_segment_delete_delay_ms: int | str | None
    logging_format: str | None
    logging_level: str | Sequence[str] | None
    max_connection_creation_rate: int | str | None
    max_connections: int | str | None
    max_connections_per_ip: int | str | None
    max_connections_per_ip_overrides: str | Sequence[str] | None
    max_in_flight_requests_per_connection: int | str | None
    max_incremental_fetch_session_cache_slots: str | None
    max_request_partition_size_limit: str | None
    message_format: str | None
    message_max_bytes: int | str | None
    metadata_log_dir: str | None
    metadata_log_max_record_bytes_between_snapshots: str | None
    metadata_log_max_snapshot_interval_ms: str | None
    metadata_log_segment_bytes: str | None
    metadata_log_segment_ms: str | None
    metadata_max_idle_interval_ms: str | None
    metadata_max_retention_bytes: str | None
    metadata_max_retention_ms: str | None
    metric_reporters: str | None
    metrics_authentication_users_file: str | None
    metrics_listen: str | None
    metrics_num_samples: str | None
    metrics_recording_level: str | None
    metrics_sample_window_ms: str | None
    min_insync_replicas: int | str | None
    num_io_threads: str | None
    num_network_threads: str | None
    num_partitions: int | str | None
    num_recovery_threads_per_data_dir: str | None
    num_replica_alter_log_dirs_threads: str | None
    num_replica_fetchers: str | None
    offset_metadata_max_bytes: int | str | None
    offsets_commit_required_acks: str | None
    offsets_commit_timeout_ms: int | str | None
    offsets_load_buffer_size: int | str | None
    offsets_retention_check_interval_ms: int | str | None
    offsets_retention_minutes: int | str | None
    offsets_topic_compression_codec: str | None
    offsets_topic_num_partitions: int | str | None
    offsets_topic_replication_factor: int | str | None
    offsets_topic_segment_bytes: int | str | None
    org_apache_kafka_sasl_oauthbearer_allowed_files: str | Sequence[str] | None
    org_apache_kafka_sasl_oauthbearer_allowed_urls: str | Sequence[str] | None
    plugins_blocked: str | Sequence[str] | None
    plugins_entry_points_enable: bool | str | None
    plugins_modules: str | Sequence[str] | None
    principal_builder_class: str | None
    process_roles: str | Sequence[str] | None
    producer_id_expiration_check_interval_ms: int | str | None
    producer_id_expiration_ms: int | str | None
    producer_purgatory_purge_interval_requests: str | None
    queued_max_request_bytes: int | str | None
    queued_max_requests: str | None
    quota_window_num: int | str | None
    quota_window_size_seconds: int | str | None
    record_validation: bool | str | None
    remote_fetch_max_wait_ms: int | str | None
    remote_list_offsets_request_timeout_ms: int | str | None
    remote_log_index_file_cache_total_size_bytes: int | str | None
    remote_log_manager_copier_thread_pool_size: int | str | None
    remote_log_manager_copy_max_bytes_per_second: int | str | None
    remote_log_manager_copy_quota_window_num: str | None
    remote_log_manager_copy_quota_window_size_seconds: str | None
    remote_log_manager_expiration_thread_pool_size: str | None
    remote_log_manager_fetch_max_bytes_per_second: int | str | None
    remote_log_manager_fetch_quota_window_num: str | None
    remote_log_manager_fetch_quota_window_size_seconds: str | None
    remote_log_manager_follower_thread_pool_size: str | None
    remote_log_manager_task_interval_ms: int | str | None
    remote_log_manager_thread_pool_size: str | None
    remote_log_metadata_custom_metadata_max_bytes: str | None
    remote_log_metadata_manager_class_name: str | None
    remote_log_metadata_manager_class_path: str | None
    remote_log_metadata_manager_impl_prefix: str | None
    remote_log_metadata_manager_listener_name: str | None
    remote_log_reader_max_pending_tasks: int | str | None
    remote_log_reader_threads: int | str | None
    remote_log_storage_manager_class_name: str | None
    remote_log_storage_manager_class_path: str | None
    remote_log_storage_manager_impl_prefix: str | None
    remote_log_storage_system_enable: bool | str | None
    replica_alter_log_dirs_io_max_bytes_per_second: str | None
    replica_fetch_backoff_ms: int | str | None
    replica_fetch_max_bytes: int | str | None
    replica_fetch_min_bytes: int | str | None
    replica_fetch_response_max_bytes: int | str | None
    replica_fetch_wait_max_ms: int | str | None
    replica_high_watermark_checkpoint_interval_ms: int | str | None
    replica_lag_time_max_ms: int | str | None
    replica_selector_class: str | None
    replica_socket_receive_buffer_bytes: str | None
    replica_socket_timeout_ms: int | str | None
    replication_quota_window_num: str | None
    replication_quota_window_size_seconds: str | None
    request_timeout_ms: str | None
    reserved_broker_max_id: int | str | None
    rsm_config_access_key_id: str | None
    rsm_config_endpoint: str | None
    rsm_config_payload_checksum: str | None
    rsm_config_region: str | None
    rsm_config_secret_access_key: str | Secret[str] | None
    rsm_config_session_token: str | Secret[str] | None
    rsm_config_virtual_hosted_style: bool | str | None
    sasl_enabled_mechanisms: str | Sequence[str] | None
    sasl_jaas_config: str | Secret[str] | None
    sasl_kerberos_kinit_cmd: str | None
    sasl_kerberos_min_time_before_relogin: str | None
    sasl_kerberos_principal_to_local_rules: str | Sequence[str] | None
    sasl_kerberos_service_name: str | None
    sasl_kerberos_ticket_renew_jitter: str | None
    sasl_kerberos_ticket_renew_window_factor: str | None
    sasl_login_callback_handler_class: str | None
    sasl_login_read_timeout_ms: int | str | None
    sasl_login_refresh_window_factor: float | str | None
    sasl_mechanism_inter_broker_protocol: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | Secret[str] | None
    sasl_oauthbearer_clock_skew_seconds: int | str | None
    sasl_oauthbearer_expected_audience: str | Sequence[str] | None
    sasl_oauthbearer_expected_issuer: str | None
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int | str | None
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int | str | None
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int | str | None
    sasl_oauthbearer_jwks_endpoint_url: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_sub_claim_name: str | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_scram_bootstrap_users: str | Secret[str] | None
    sasl_server_callback_handler_class: str | None
    sasl_server_max_receive_size: int | str | None
    schema_registry_authentication_method: str | None
    schema_registry_authentication_realm: str | None
    schema_registry_authentication_roles: str | Sequence[str] | None
    schema_registry_authentication_users_file: str | None
    schema_registry_command_config: str | None
    schema_registry_listen: str | None
    security_inter_broker_protocol: str | None
    share_coordinator_append_linger_ms: str | None
    share_coordinator_cached_buffer_max_bytes: str | None
    share_coordinator_cold_partition_snapshot_interval_ms: int | str | None
    share_coordinator_load_buffer_size: int | str | None
    share_coordinator_snapshot_update_records_per_snapshot: int | str | None
    share_coordinator_state_topic_compression_codec: str | None
    share_coordinator_state_topic_min_isr: int | str | None
    share_coordinator_state_topic_num_partitions: int | str | None
    share_coordinator_state_topic_prune_interval_ms: int | str | None
    share_coordinator_state_topic_replication_factor: int | str | None
    share_coordinator_state_topic_segment_bytes: int | str | None
    share_coordinator_threads: str | None
    share_coordinator_write_timeout_ms: int | str | None
    share_fetch_purgatory_purge_interval_requests: str | None
    slow_request_threshold_ms: int | str | None
    socket_connection_setup_timeout_max_ms: str | None
    socket_connection_setup_timeout_ms: str | None
    socket_listen_backlog_size: str | None
    socket_receive_buffer_bytes: str | None
    socket_request_max_bytes: int | str | None
    socket_send_buffer_bytes: str | None
    socket_unsent_max_bytes: int | str | None
    ssl_allow_dn_changes: bool | str | None
    ssl_allow_san_changes: bool | str | None
    ssl_cipher_suites: str | Sequence[str] | None
    ssl_client_auth: str | None
    ssl_enabled_protocols: str | Sequence[str] | None
    ssl_endpoint_identification_algorithm: str | None
    ssl_key_password: str | Secret[str] | None
    ssl_keystore_certificate_chain: str | Secret[str] | None
    ssl_keystore_key: str | Secret[str] | None
    ssl_keystore_location: str | None
    ssl_keystore_password: str | Secret[str] | None
    ssl_keystore_type: str | None
    ssl_principal_mapping_rules: str | None
    ssl_protocol: str | None
    ssl_truststore_certificates: str | Secret[str] | None
    ssl_truststore_location: str | None
    ssl_truststore_password: str | Secret[str] | None
    ssl_truststore_type: str | None
    super_users: str | None
    telemetry_max_bytes: str | None
    topic_flush_intervals_ms: str | None
    topic_log_file_size: str | None
    topic_log_retention_hours: str | None
    topic_log_retention_size: str | None
    topic_log_roll_hours: str | None
    topic_partition_count_map: str | None
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int | str | None
    transaction_max_timeout_ms: int | str | None
    transaction_partition_verification_enable: bool | str | None
    transaction_remove_expired_transaction_cleanup_interval_ms: int | str | None
    transaction_state_log_load_buffer_size: int | str | None
    transaction_state_log_min_isr: int | str | None
    transaction_state_log_num_partitions: int | str | None
    transaction_state_log_replication_factor: int | str | None
    transaction_state_log_segment_bytes: int | str | None
    transaction_two_phase_commit_enable: str | None
    transactional_id_expiration_ms: int | str | None
    unclean_leader_election_enable: bool | str | None
    workers: int | str | None
    zookeeper_clientCnxnSocket: str | None
    zookeeper_connection_timeout_ms: int | str | None
    zookeeper_max_in_flight_requests: str | None
    zookeeper_sasl_client_username: str | None
    zookeeper_sasl_jaas_config: str | Secret[str] | None
    zookeeper_session_timeout_ms: int | str | None
    zookeeper_set_acl: bool | str | None
    zookeeper_ssl_cipher_suites: str | Sequence[str] | None
    zookeeper_ssl_client_enable: bool | str | None
    zookeeper_ssl_crl_enable: str | None
    zookeeper_ssl_enabled_protocols: str | Sequence[str] | None
    zookeeper_ssl_endpoint_identification_algorithm: str | None
    zookeeper_ssl_keystore_location: str | None
    zookeeper_ssl_keystore_password: str | Secret[str] | None
    zookeeper_ssl_keystore_type: str | None
    zookeeper_ssl_ocsp_enable: str | None
    zookeeper_ssl_protocol: str | None
    zookeeper_ssl_truststore_location: str | None
    zookeeper_ssl_truststore_password: str | Secret[str] | None
    zookeeper_ssl_truststore_type: str | None
    broker_session_timeout_ms: int | str | None
    brokerid: int | str | None
    enable_zookeeper: int | str | None
    etcd_connect: int | str | None
    log_cleanup_interval_mins: int | str | None
    log_default_flush_interval_ms: int | str | None
    log_default_flush_scheduler_interval_ms: int | str | None
    log_file_size: int | str | None
    log_flush_interval: int | str | None
    log_retention_size: int | str | None
    max_message_size: int | str | None
    max_socket_request_bytes: int | str | None
    node_id: int | str | None
    num_threads: int | str | None
    socket_receive_buffer: int | str | None
    socket_send_buffer: int | str | None
    zk_connect: int | str | None
    zk_connectiontimeout_ms: int | str | None
    zk_sessiontimeout_ms: int | str | None
    zookeeper_connect: int | str | None
