"""The settings of clients as keyword arguments, with their types; made by tools/typed_settings.py.

A type checker refuses misspelt names and wrong types, and an editor completes them. None means: not given.
"""

from collections.abc import Callable, Mapping, Sequence
from ssl import SSLContext
from typing import Any, Literal, TypedDict

from ....core.client.group.assignor import Assignor
from ....ports.values import Secret
from .connect import Plugins


class SecurityKeywords(TypedDict, total=False):
    """TLS and SASL of the connections to brokers."""

    security_protocol: str | None
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL: what the listener speaks."""
    ssl_truststore_location: str | None
    """The file with the certificate authorities that the client trusts; by default those of the system."""
    ssl_truststore_type: str | None
    """PEM or PKCS12; by default what the file is."""
    ssl_truststore_password: str | Secret[str] | None
    """The password of a PKCS12 file."""
    ssl_truststore_certificates: str | None
    """The trusted certificates in PEM, in place of a file."""
    ssl_keystore_location: str | None
    """The file with the private key and the certificate chain of the client."""
    ssl_keystore_type: str | None
    """PEM or PKCS12; by default what the file is."""
    ssl_keystore_password: str | Secret[str] | None
    """The password of a PKCS12 file."""
    ssl_keystore_key: str | Secret[str] | None
    """The private key in PEM, in place of a file."""
    ssl_keystore_certificate_chain: str | None
    """The certificate chain in PEM, in place of a file."""
    ssl_key_password: str | Secret[str] | None
    """The password of the private key."""
    ssl_certificate_location: str | None
    """The file with the certificate chain in PEM, apart from the key; librdkafka's name."""
    ssl_key_location: str | None
    """The file with the private key in PEM; librdkafka's name."""
    ssl_endpoint_identification_algorithm: str | bool | None
    """https: the certificate of a broker must have the host name that the client connects to; none or empty: any."""
    enable_ssl_certificate_verification: bool | None
    """False: the client accepts every certificate of a broker, and therefore every broker. For experiments only."""
    ssl_enabled_protocols: str | Sequence[str] | None
    """The versions of TLS that may be used."""
    ssl_protocol: str | None
    """The highest version of TLS that may be used."""
    ssl_context: SSLContext | None
    """An `ssl.SSLContext` of a client, in place of all other `ssl.*` settings; kafka-python's and aiokafka's name."""
    ssl_cipher_suites: str | Sequence[str] | None
    """The cipher suites that may be used, by the names of OpenSSL or Java; empty: OpenSSL's default."""
    sasl_mechanism: str | None
    """PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI; needed with SASL_PLAINTEXT and SASL_SSL."""
    sasl_jaas_config: str | Secret[str] | None
    """The login module with its options: `MODULE required username="NAME" password="PASSWORD";`."""
    sasl_username: str | None
    """The user of PLAIN and SCRAM, in place of `sasl.jaas.config`; librdkafka's name."""
    sasl_password: str | Secret[str] | None
    """The password of that user."""
    sasl_login_callback_handler_class: str | None
    """Accepted where it is Kafka's own class for OAUTHBEARER, whose work the client does."""
    sasl_login_connect_timeout_ms: int | None
    """The time that the connection to a token endpoint may take."""
    sasl_login_read_timeout_ms: int | None
    """The time that the client waits for the answer of a token endpoint."""
    sasl_login_retry_backoff_ms: int | None
    """The wait before another request to the token endpoint; it doubles with each failure."""
    sasl_login_retry_backoff_max_ms: int | None
    """The longest wait before another request to the token endpoint."""
    sasl_login_refresh_window_factor: float | None
    """The part of a token's lifetime after which the client requests the next one."""
    sasl_login_refresh_buffer_seconds: int | None
    """The time before its expiry at which the client requests the next token at the latest."""
    sasl_oauthbearer_token_endpoint_url: str | None
    """The URL at which the client requests tokens by its credentials (OAuth 2.0 client credentials grant)."""
    sasl_oauthbearer_client_credentials_client_id: str | None
    """The client id for the token endpoint; else the option `clientId` of the login module."""
    sasl_oauthbearer_client_credentials_client_secret: str | Secret[str] | None
    """The client secret for the token endpoint; else the option `clientSecret` of the login module."""
    sasl_oauthbearer_scope: str | None
    """The scope to request; else the option `scope` of the login module."""
    sasl_oauth_token_provider: Callable[[], str] | object | None
    """A callable that returns a token, or an object with such a method `token`; kafka-python's name."""
    sasl_oauthbearer_extensions: str | None
    """SASL extensions for the broker, `name=value,...`; librdkafka's name."""
    sasl_oauthbearer_scope_claim_name: str | None
    """The claim of a token that has its scopes."""
    sasl_oauthbearer_sub_claim_name: str | None
    """The claim of a token that has its principal."""
    sasl_oauthbearer_method: str | None
    """oidc: client credentials; librdkafka's name."""
    sasl_kerberos_service_name: str | None
    """The Kerberos service of the brokers, usually kafka; else the option `serviceName` of the login module."""
    sasl_kerberos_principal: str | None
    """The Kerberos principal of the client; librdkafka's name."""
    sasl_kerberos_keytab: str | None
    """The file with the keys of that principal; librdkafka's name."""


class RegistryKeywords(TypedDict, total=False):
    """TLS and logins of the connections to the registries of the classic generation."""

    etcd_cacert: str | None
    etcd_cert: str | None
    etcd_insecure_transport: bool | str | None
    etcd_key: str | None
    etcd_password: str | Secret[str] | None
    etcd_user: str | None
    zookeeper_sasl_client_username: str | None
    zookeeper_sasl_jaas_config: str | Secret[str] | None
    zookeeper_set_acl: bool | str | None
    zookeeper_ssl_cipher_suites: str | Sequence[str] | None
    zookeeper_ssl_client_enable: bool | str | None
    zookeeper_ssl_enabled_protocols: str | Sequence[str] | None
    zookeeper_ssl_endpoint_identification_algorithm: str | None
    zookeeper_ssl_keystore_location: str | None
    zookeeper_ssl_keystore_password: str | Secret[str] | None
    zookeeper_ssl_keystore_type: str | None
    zookeeper_ssl_protocol: str | None
    zookeeper_ssl_truststore_location: str | None
    zookeeper_ssl_truststore_password: str | Secret[str] | None
    zookeeper_ssl_truststore_type: str | None


class ClientKeywords(SecurityKeywords, total=False):
    """The settings of every client."""

    client_id: str | None
    """The name of the client in requests, logs and metrics of brokers."""
    request_timeout_ms: int | None
    """The time that the client waits for a response; then it repeats the request, or the request has failed."""
    socket_connection_setup_timeout_ms: int | None
    """The time that the setup of a connection may take."""
    retry_backoff_ms: float | None
    """The wait before a request is repeated; it doubles with each failure in a row."""
    retry_backoff_max_ms: float | None
    """The longest wait before a request is repeated."""
    reconnect_backoff_ms: float | None
    """The wait before the next connection to a broker that could not be reached; it doubles with each failure."""
    reconnect_backoff_max_ms: float | None
    """The longest wait before the next connection."""
    metadata_max_age_ms: float | None
    """The age of metadata (topics and leaders) at which the client requests it again."""
    default_api_timeout_ms: int | None
    """The whole time that a call waits for its result, with all attempts and the waits between them."""


class ProducerKeywords(ClientKeywords, total=False):
    """The settings of a `Producer`."""

    acks: int | Literal["all"] | str | None
    """The replicas that must have a message: 0 none (no acknowledgement), 1 the leader, -1 or all the whole ISR."""
    compression_type: str | None
    """The codec of batches: none, gzip, snappy, lz4, zstd, or a plug-in's."""
    compressed_topics: str | Sequence[str] | None
    """With a codec: compress only these topics; empty = all."""
    linger_ms: float | None
    """The time that a batch that is not full waits for more messages."""
    batch_size: int | None
    """About how many bytes go into a batch before compression. A batch of one message may be larger."""
    batch_num_messages: int | None
    """The most messages that go into a batch."""
    buffer_memory: int | None
    """The most bytes of messages that may wait for their delivery."""
    queue_buffering_max_messages: int | None
    """The most messages that may wait for their delivery."""
    max_block_ms: float | None
    """The time that `send` waits for room: 0 = not at all, negative = for ever; then it raises `QueueFull`. A message
    waits as long for the metadata of its topic, unless `delivery.timeout.ms` is less, or this is 0 or negative."""
    max_request_size: int | None
    """The largest message, and how many bytes of batches one request carries, about."""
    max_in_flight_requests_per_connection: int | None
    """The most requests that wait for a broker's response at a time."""
    retries: int | None
    """The most retries of a batch, within `delivery.timeout.ms`."""
    delivery_timeout_ms: float | None
    """A message that is not delivered within this time after `send` has failed."""
    enable_idempotence: bool | None
    """Retries neither duplicate nor reorder messages (facts B2); unset: if acks, retries and in-flight allow it."""
    transactional_id: str | None
    """Makes a transactional producer; it fences the producer that had the id before."""
    transaction_timeout_ms: int | None
    """The coordinator aborts a transaction that stays open for longer than this, and fences its producer."""
    producer_type: Literal["sync", "async"] | str | None
    """With sync, `send` returns when the message has arrived."""
    allow_auto_create_topics: bool | None
    """Whether a topic that is missing may be made by the broker."""
    event_handler_props: Mapping[str, object] | None
    """The properties that the event handler receives."""
    callback_handler_props: Mapping[str, object] | None
    """The properties that the callback handler receives."""


class AnyProducerKeywords(ProducerKeywords, RegistryKeywords, total=False):
    """The settings of a `Producer`, and those that only the classic generation has."""

    zookeeper_session_timeout_ms: int | None
    """The silence after which the session with ZooKeeper or etcd ends."""
    zookeeper_connection_timeout_ms: int | None
    """The longest wait for the first connection; 0: a session."""
    zookeeper_sync_time_ms: int | None
    """Accepted for old configurations; a producer waits for no follower."""
    broker_list: str | None
    """The brokers, ID:HOST:PORT,...; in place of registries."""
    zk_connect: str | None
    """HOST:PORT,.../CHROOT of the ZooKeeper with the registries."""
    etcd_connect: str | None
    """HOST:PORT,.../PREFIX of the etcd with the registries."""
    compression_codec: str | int | None
    """The codec of batches: none (0), gzip (1), snappy (2), or a plug-in's."""
    num_retries: int | None
    """The retries of a request whose connection broke, at the same broker; asynchronous only; it may arrive twice."""
    zk_read_num_retries: int | None
    """The number of further reads of the registries when no broker is found."""
    buffer_size: int | None
    """While more bytes than this wait in a connection to go out, further requests wait before it."""
    connect_timeout_ms: int | None
    """The longest wait for a connection."""
    socket_timeout_ms: int | None
    """The longest wait for an answer, where there is one."""
    reconnect_interval: int | None
    """The number of requests after which a connection is replaced."""
    reconnect_time_interval_ms: float | None
    """The time after which a connection is replaced; negative = never."""
    max_message_size: int | None
    """The largest message."""
    queue_time: float | None
    """The longest wait of messages in the queue of an asynchronous producer for a full batch."""
    queue_size: int | None
    """The number of messages that this queue holds."""
    queue_enqueue_timeout_ms: float | None
    """The longest wait of `send` for a place: 0 = none, negative = for ever; then it raises `QueueFull`."""
    coordination: object
    """The registries: a URL, a running `Broker`, or a callable that opens a session."""


class FetchKeywords(ClientKeywords, total=False):
    """The settings of fetches, of all consumers."""

    fetch_min_bytes: int | None
    """A broker with fewer bytes waits before it answers."""
    fetch_max_wait_ms: int | None
    """The longest time that a broker waits for `fetch.min.bytes`."""
    fetch_max_bytes: int | None
    """About how many bytes an answer carries."""
    max_partition_fetch_bytes: int | None
    """About how many bytes an answer carries of one partition."""
    max_poll_records: int | None
    """The most messages that `poll_many` returns, unless a call names its own limit."""
    auto_offset_reset: Literal["earliest", "latest", "none"] | str | None
    """The start of reading when no offset is committed, or when the position is out of range: earliest, latest, or none
    (an error)."""
    isolation_level: Literal["read_uncommitted", "read_committed"] | str | None
    """With read_committed, the reader gets no messages of open or aborted transactions."""
    check_crcs: bool | None
    """Whether the checksums of batches are verified."""
    skip_damaged: bool | None
    """Skip damaged records, and report which they are; otherwise `CorruptRecord` is raised where they begin."""
    consumer_timeout_ms: float | None
    """The time that iteration waits for a message before it ends; -1 = for ever."""
    allow_auto_create_topics: bool | None
    """Whether a topic that is missing may be made by the broker."""


class SimpleConsumerKeywords(FetchKeywords, total=False):
    """The settings of a `SimpleConsumer`, and those that only the classic generation has."""

    socket_timeout_ms: int | None
    """The longest wait for an answer."""
    connect_timeout_ms: int | None
    """The longest wait for a connection."""
    socket_buffersize: int | None
    """Accepted for old configurations; the system sizes its own buffers."""
    fetch_size: int | None
    """The bytes of a partition that a fetch asks for."""
    fetch_size_max: int | None
    """The size up to which a fetch grows for one message that is larger than it."""


class ConsumerKeywords(FetchKeywords, total=False):
    """The settings of a `Consumer`."""

    group_id: str | None
    """The consumer group to join, or to commit offsets for; empty = none."""
    group_instance_id: str | None
    """Makes a static member: its return with this id within the session timeout causes no rebalance (KIP-345)."""
    group_protocol: Literal["classic", "consumer", "auto"] | str | None
    """The protocol of the group: `classic`, or `consumer` (KIP-848: the coordinator assigns, without a stop of all).
    `auto`: the latter where the cluster offers it, unless a setting or the group needs the former."""
    group_remote_assignor: str | None
    """The assignor of the coordinator, `uniform` or `range`, with `group.protocol=consumer`; empty = its choice."""
    enable_auto_commit: bool | None
    """Commit offsets of processed messages automatically: at an interval, before partitions are revoked, on closing."""
    auto_commit_interval_ms: float | None
    """The interval of automatic commits."""
    partition_assignment_strategy: str | Assignor | Sequence[str | Assignor] | None
    """Names, or objects with the methods of an `Assignor`, in the order of preference."""
    session_timeout_ms: int | None
    """The group removes a member whose heartbeats stop for this time."""
    heartbeat_interval_ms: int | None
    """The time between two heartbeats of a member; less than `session.timeout.ms`."""
    max_poll_interval_ms: int | None
    """A member that asks for no messages for this time leaves the group; a rebalance waits as long for a member."""
    exclude_internal_topics: bool | None
    """Whether a pattern ignores internal topics."""
    client_rack: str | None
    """The rack of the consumer, for brokers that choose a near replica (`replica.selector.class`)."""


class ShareConsumerKeywords(ClientKeywords, total=False):
    """The settings of a `ShareConsumer`."""

    group_id: str | None
    """The share group to join; needed."""
    share_acknowledgement_mode: Literal["implicit", "explicit"] | str | None
    """implicit: who asks for more messages has processed the earlier ones. explicit: the user calls `acknowledge` for
    each message."""
    share_acquire_mode: Literal["batch_optimized", "record_limit"] | str | None
    """batch_optimized: a leader hands out whole record batches, and so more than `max.poll.records` at times;
    record_limit: never more, one after the other (Apache Kafka 4.2)."""
    max_poll_records: int | None
    """About how many records a fetch acquires, and the most that `poll_many` returns if a call has no limit."""
    max_poll_interval_ms: int | None
    """A member that asks for no messages for this time leaves the group, until it asks again."""
    fetch_min_bytes: int | None
    """A broker with fewer bytes waits before it answers."""
    fetch_max_wait_ms: int | None
    """The longest time that a broker waits for `fetch.min.bytes`."""
    fetch_max_bytes: int | None
    """About how many bytes an answer carries."""
    check_crcs: bool | None
    """Whether the checksums of batches are verified."""
    consumer_timeout_ms: float | None
    """The time that iteration waits for a message before it ends; -1 = for ever."""
    client_rack: str | None
    """The rack of the consumer."""


class ProducerArguments(AnyProducerKeywords, total=False):
    """All keyword arguments of a `Producer`."""

    encoder: object
    """See `Producer`."""
    key_encoder: object
    """See `Producer`."""
    partitioner: object
    """See `Producer`."""
    event_handler: object
    """See `Producer`."""
    callback_handler: object
    """See `Producer`."""
    plugins: Plugins
    """See `Producer`."""
    config: Mapping[str, Any] | None
    """See `Producer`."""


class ConsumerArguments(ConsumerKeywords, total=False):
    """All keyword arguments of a `Consumer`."""

    decoder: object
    """See `Consumer`."""
    key_decoder: object
    """See `Consumer`."""
    plugins: Plugins
    """See `Consumer`."""
    config: Mapping[str, Any] | None
    """See `Consumer`."""


class ShareConsumerArguments(ShareConsumerKeywords, total=False):
    """All keyword arguments of a `ShareConsumer`."""

    decoder: object
    """See `ShareConsumer`."""
    key_decoder: object
    """See `ShareConsumer`."""
    plugins: Plugins
    """See `ShareConsumer`."""
    config: Mapping[str, Any] | None
    """See `ShareConsumer`."""


class ConnectorKeywords(SecurityKeywords, RegistryKeywords, total=False):
    """The settings of a `ConsumerConnector`."""

    etcd_connect: str | None
    """HOST:PORT,.../PREFIX of the etcd with the registries."""
    client_id: str | None
    """The name of the consumer in its log."""
    consumerid: str | None
    """The consumer id instead of a generated one; for tests. Two consumers of one group must not share it."""
    socket_timeout_ms: int | None
    """The longest wait for an answer."""
    socket_buffersize: int | None
    """Accepted, without effect: the transport sizes its own buffers."""
    socket_connection_setup_timeout_ms: int | None
    """The longest wait for a connection."""
    reconnect_backoff_ms: float | None
    """The wait before a broker that could not be reached is tried again; it doubles."""
    reconnect_backoff_max_ms: float | None
    """The longest such wait."""
    fetch_size: int | None
    """The bytes of a partition that a fetch asks for."""
    fetch_size_max: int | None
    """Ours: the size up to which a fetch of one partition grows for a single message larger than `fetch.size`."""
    fetch_max_bytes: int | None
    """Ours: the bytes that one request asks for in all; further partitions wait for the next one."""
    fetcher_backoff_ms: float | None
    """The pause of a fetcher whose partitions had nothing."""
    autocommit_enable: bool | None
    """Commit automatically what was handed out, at an interval and at the end."""
    autocommit_interval_ms: float | None
    """The interval of `autocommit.enable`."""
    autooffset_reset: Literal["smallest", "largest", "earliest", "latest", "none"] | str | None
    """The start position without an offset, or with one out of range; `none` raises that in the stream."""
    queuedchunks_max: int | None
    """Chunks that wait per stream. What was asked for before it was full still comes: one more per partition."""
    rebalance_retries_max: int | None
    """The attempts at a rebalance before `ConsumerRebalanceFailed`."""
    consumer_timeout_ms: float | None
    """The longest wait of a stream for a message before it raises `ConsumerTimeout`; -1 = for ever."""
    shallowiterator_enable: bool | None
    """Streams give the outer messages as stored, compressed wrappers unopened."""
    check_crcs: bool | None
    """Whether checksums of messages are verified."""
    zk_sessiontimeout_ms: int | None
    """The silence after which the session with ZooKeeper or etcd ends; the others share the partitions then."""
    zk_connectiontimeout_ms: int | None
    """The longest wait for the first connection. Default: a session."""
    zk_synctime_ms: float | None
    """The delay that a ZooKeeper follower may have; also the default wait of a rebalance."""
    rebalance_backoff_ms: float | None
    """The wait before a rebalance is tried again. Default: `zk.synctime.ms`."""
    mirror_topics_whitelist: str | None
    """Accepted, without effect, as in 0.7.1 and later; so are the next two."""
    mirror_topics_blacklist: str | None
    """Accepted, without effect."""
    mirror_consumer_numthreads: int | None
    """Accepted, without effect."""
    zk_suspended_stop_ms: float | None
    """Ours: how long a consumer without connection to the registries hands out messages; then it waits for the
    connection, since its session may end and another own its partitions. Default: a third of the session; -1: for ever,
    as in 0.7."""
