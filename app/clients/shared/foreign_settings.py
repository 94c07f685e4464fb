"""Settings of other Kafka clients: what each one is here, or what to do instead.

`OTHER_NAMES` and `COUNTERPARTS` are understood. `IGNORED` settings tune another library: a client names them in one
warning. `REFUSED` settings change what a client does, or how safely: a client raises `ConfigError`, unless the value
asks for what Barnabas does anyway. Keys are dotted; the underscores of other libraries count as dots. The pages
`docs/coming-from-*.md` are compared with these tables.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ....ports.errors import ConfigError
from ....ports.values import frozen

OTHER_NAMES = {
    "connect.timeout.ms": "socket_connection_setup_timeout_ms",
    "socket.timeout.ms": "request_timeout_ms",
    "topic.metadata.refresh.interval.ms": "metadata_max_age_ms",
    "request.required.acks": "acks",
    "compression.codec": "compression_type",
    "queue.time": "linger_ms",
    "queue.buffering.max.ms": "linger_ms",
    "queue.size": "queue_buffering_max_messages",
    "queue.enqueueTimeout.ms": "max_block_ms",
    "queue.enqueue.timeout.ms": "max_block_ms",
    "num.retries": "retries",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery_timeout_ms",
    "max.batch.size": "batch_size",
    "max.message.size": "max_request_size",
    "message.max.bytes": "max_request_size",
    "max.in.flight": "max_in_flight_requests_per_connection",
    "partitioner.class": "partitioner",
    "serializer.class": "encoder",
    "value.serializer": "encoder",
    "key.serializer": "key_encoder",
    "key.serializer.class": "key_encoder",
    "value.deserializer": "decoder",
    "key.deserializer": "key_decoder",
    "groupid": "group_id",
    "autocommit.enable": "enable_auto_commit",
    "auto.commit.enable": "enable_auto_commit",
    "autocommit.interval.ms": "auto_commit_interval_ms",
    "autooffset.reset": "auto_offset_reset",
    "fetch.size": "max_partition_fetch_bytes",
    "fetch.message.max.bytes": "max_partition_fetch_bytes",
    "fetch.wait.max.ms": "fetch_max_wait_ms",
}
"""Dotted name → the field that it stands for, in every kind of settings that has it."""

BOOTSTRAP_KEYS = ("bootstrap.servers", "metadata.broker.list")
"""The keys whose value is a client's first argument."""


@frozen(kw_only=True)
class Counterpart:
    """A setting that has a counterpart with other values: `key` is ours, `convert` makes its value."""

    key: str
    convert: Callable[[Any], Any]
    note: str


def _kibibytes(value: Any) -> int:
    return int(value) * 1024


COUNTERPARTS: Mapping[str, Counterpart] = {
    "queue.buffering.max.kbytes": Counterpart(key="buffer.memory", convert=_kibibytes, note="times 1,024"),
}


@frozen
class RefusedSetting:
    """A setting that cannot be had: what to do instead, and the values that ask for what Barnabas does anyway."""

    advice: str
    harmless: tuple[str, ...] = ()

    def refuses(self, value: Any) -> bool:
        """Return whether this value of the setting is an error."""
        if isinstance(value, list | tuple | dict) and not value:
            return False
        text = str(value).strip().lower()
        return text not in self.harmless and {"0": "false", "1": "true"}.get(text) not in self.harmless


def _each(keys: str, what: str) -> dict[str, str]:
    return dict.fromkeys(keys.split(), what)


IGNORED: Mapping[str, str] = {
    **_each(
        "send.buffer.bytes receive.buffer.bytes socket.send.buffer.bytes socket.receive.buffer.bytes "
        "socket.keepalive.enable socket.nagle.disable socket.options sock.chunk.bytes sock.chunk.buffer.count "
        "socket.blocking.max.ms",
        "the client sets the options of its sockets itself",
    ),
    **_each(
        "connections.max.idle.ms socket.max.fails reconnect.backoff.jitter.ms bootstrap.timeout.ms "
        "socket.connection.setup.timeout.max.ms",
        "the client opens and closes connections by its own rules; "
        "see reconnect.backoff.ms and socket.connection.setup.timeout.ms",
    ),
    **_each(
        "broker.address.ttl broker.address.family",
        "the client resolves a name at each connection and tries all its addresses",
    ),
    **_each(
        "api.version api.version.auto.timeout.ms api.version.request api.version.request.timeout.ms "
        "api.version.fallback.ms broker.version.fallback",
        "the client asks each broker for its API versions",
    ),
    **_each(
        "metadata.max.idle.ms metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms "
        "topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.fast.cnt topic.metadata.refresh.sparse "
        "topic.metadata.propagation.max.ms",
        "metadata.max.age.ms says when the client requests metadata again",
    ),
    **_each(
        "debug log.level log.queue log.thread.name log.connection.close log.cb logger",
        'set the level of the logger: logging.getLogger("barnabas.client")',
    ),
    **_each(
        "statistics.interval.ms stats.cb throttle.cb enabled.events background.event.cb metric.reporters "
        "metrics.enabled metrics.num.samples metrics.sample.window.ms metrics.recording.level metric.group.prefix "
        "enable.metrics.push auto.include.jmx.reporter",
        "clients report no statistics; see Producer.delivered and Producer.failed, Consumer.lag(), brokers' metrics",
    ),
    **_each("error.cb", "calls, handles and on_delivery get the errors; the logger barnabas.client has the warnings"),
    **_each(
        "selector kafka.client loop opaque enable.random.seed internal.termination.signal builtin.features "
        "ssl.engine.id ssl.engine.callback.data internal.leave.group.on.close legacy.iterator",
        "it belongs to the inside of another library; leave it out",
    ),
    **_each("receive.message.max.bytes", "fetch.max.bytes bounds the answers"),
    # producers
    **_each(
        "message.copy.max.bytes queue.buffering.backpressure.threshold sticky.partitioning.linger.ms "
        "partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms",
        "the producer fills batches by its own rules; see batch.size and linger.ms",
    ),
    **_each(
        "compression.level compression.gzip.level compression.lz4.level compression.zstd.level",
        "codecs compress at their default level",
    ),
    **_each("delivery.report.only.error", "on_delivery= of send() is called for every message; look at its error"),
    **_each("produce.offset.report", "a delivery always has its offset"),
    # consumers
    **_each(
        "queued.min.messages queued.max.messages.kbytes fetch.queue.backoff.ms fetch.error.backoff.ms "
        "consume.callback.max.messages enable.incremental.fetch.sessions coordinator.query.interval.ms "
        "internal.throw.on.fetch.stable.offset.unsupported",
        "the consumer fetches ahead by its own rules; see fetch.max.bytes and max.partition.fetch.bytes",
    ),
    **_each("rebalance.timeout.ms", "a rebalance waits max.poll.interval.ms for a member"),
    # security
    **_each(
        "sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.ticket.renew.jitter "
        "sasl.kerberos.ticket.renew.window.factor",
        "GSSAPI's library renews tickets",
    ),
    **_each(
        "sasl.login.refresh.min.period.seconds sasl.login.refresh.window.jitter",
        "sasl.login.refresh.window.factor and sasl.login.refresh.buffer.seconds say when the next token is requested",
    ),
    **_each(
        "ssl.keymanager.algorithm ssl.trustmanager.algorithm ssl.secure.random.implementation",
        "it tunes Java's TLS; this one is OpenSSL's",
    ),
    **_each(
        "sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwks.endpoint.refresh.ms "
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms "
        "sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer "
        "sasl.oauthbearer.header.urlencode",
        "brokers check tokens, not clients",
    ),
}
"""Dotted name → what does its work, or why there is none."""

_JAVA_CLASS = "a Java class cannot run here"
_ON_DELIVERY = "give on_delivery=, a function of the error and the delivery, to send()"
_NO_FUNCTION = "the client has no such callback, and its sockets cannot be replaced; leave it out"
_PROXY = "connections go to the brokers directly; give addresses that can be reached without a proxy"
_REVOCATION = "revocation lists are not read; remove the authority from ssl.truststore.location instead"
_PEM_OBJECT = "give the text in PEM: ssl.key.pem, ssl.certificate.pem, ssl.ca.pem, or files by ssl.*.location"
_GRANT = "the client gets tokens with client credentials, or from the callable sasl_oauth_token_provider"
_STORE = "committed offsets are on the brokers; leave it out"
_SHARE = "a Consumer belongs to a consumer group: make a ShareConsumer for a share group"


def _refused(keys: str, advice: str, *harmless: str) -> dict[str, RefusedSetting]:
    return dict.fromkeys(keys.split(), RefusedSetting(advice, ("", *harmless)))


REFUSED: Mapping[str, RefusedSetting] = {
    **_refused("bootstrap.controllers", "give the addresses of brokers: bootstrap.servers"),
    **_refused("client.dns.lookup", "give the canonical host names in bootstrap.servers", "use_all_dns_ips", "default"),
    **_refused("proxy.url socks5.proxy", _PROXY),
    **_refused("socket.cb connect.cb closesocket.cb open.cb resolve.cb", _NO_FUNCTION),
    **_refused("plugin.library.paths", "C plug-ins cannot run here; see the page Plug-ins"),
    **_refused("interceptors interceptor.classes", f"{_JAVA_CLASS}; callback_handler= sees the messages of a producer"),
    **_refused("config.providers", f"{_JAVA_CLASS}; put the value itself into the setting"),
    **_refused("topic.blacklist", "leave the topic out of subscribe(pattern=...)"),
    # producers
    **_refused("on.delivery dr.cb dr.msg.cb", _ON_DELIVERY),
    **_refused(
        "enable.gapless.guarantee",
        "messages behind a failed one may still arrive; a transaction delivers all of them or none",
        "false",
    ),
    **_refused("queuing.strategy", "messages go out in the order of their send(); leave it out", "fifo"),
    **_refused("partitioner.cb msg.order.cmp", "give partitioner= an object with the methods of a Partitioner"),
    **_refused("partitioner.ignore.keys", "partitioner=sticky ignores keys", "false"),
    **_refused("transaction.two.phase.commit.enable", "call prepare_transaction() and resume_transaction()", "false"),
    # consumers
    **_refused(
        "enable.auto.offset.store",
        "leave it out: the consumer commits a message only after the program has asked for the next one; "
        "or set enable.auto.commit=false and call commit(message)",
        "true",
    ),
    **_refused("enable.partition.eof", "messages(stop_at_end=True) ends where the partitions end", "false"),
    **_refused("group.protocol.type", "the consumer joins consumer groups; leave it out", "consumer"),
    **_refused("offset.store.method", _STORE, "broker"),
    **_refused("offset.store.path offset.store.sync.interval.ms", _STORE, ".", "-1"),
    **_refused("consume.cb", "iterate over the consumer: for message in consumer"),
    **_refused("rebalance.cb", "give on_assigned=, on_revoked= and on_lost= to subscribe()"),
    **_refused(
        "on.commit offset.commit.cb default.offset.commit.callback",
        "commit() raises its error; commit_async(callback=...) calls a function",
    ),
    **_refused("share.acknowledgement.mode share.acquire.mode", _SHARE, "implicit", "batch_optimized"),
    # security
    **_refused("ssl.crlfile ssl.crl.location", _REVOCATION),
    **_refused("ssl.key ssl.certificate ssl.ca", _PEM_OBJECT),
    **_refused("ssl.ca.certificate.stores", "name a file: ssl.ca.location", "root"),
    **_refused("ssl.curves.list ssl.sigalgs.list", "OpenSSL's configuration on this machine has them; leave it out"),
    **_refused("ssl.certificate.verify.cb", "the client checks certificates itself; set ssl.ca.location"),
    **_refused("ssl.engine.location", "engines of OpenSSL are not supported; set ssl.keystore.location"),
    **_refused("ssl.providers", "providers of OpenSSL are not supported; leave it out"),
    **_refused("security.providers ssl.provider", "Java's security providers do not exist here; leave it out"),
    **_refused("ssl.engine.factory.class", f"{_JAVA_CLASS}; set ssl.truststore.* and ssl.keystore.*"),
    **_refused(
        "sasl.client.callback.handler.class sasl.login.class sasl.oauthbearer.jwt.retriever.class "
        "sasl.oauthbearer.jwt.validator.class",
        f"{_JAVA_CLASS}; the client has the mechanisms built in",
    ),
    **_refused(
        "https.ca.location https.ca.pem",
        "the certificates that the client trusts at a token endpoint are those of ssl.truststore.location",
    ),
    **_refused(
        "enable.sasl.oauthbearer.unsecure.jwt sasl.oauthbearer.config oauthbearer.token.refresh.cb",
        "the client makes no unsecured tokens; give a callable as sasl_oauth_token_provider",
        "false",
    ),
    **_refused("sasl.oauthbearer.grant.type", _GRANT, "client_credentials"),
    **_refused("sasl.oauthbearer.metadata.authentication.type", _GRANT, "none"),
    **_refused(
        "sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.private.key.file "
        "sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem "
        "sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.claim.aud "
        "sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.exp.minutes "
        "sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include "
        "sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.nbf.minutes "
        "sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.jwt.template.file "
        "sasl.oauthbearer.assertion.template.file",
        _GRANT,
    ),
    **_refused(
        "sasl.kerberos.name sasl.kerberos.domain.name",
        "the principal of a broker is sasl.kerberos.service.name/HOST; give that host in bootstrap.servers",
    ),
}
"""Dotted name → what to do instead."""


def dotted_name(name: str) -> str:
    """Return the dotted form of a setting's name; underscores count as dots."""
    return name.replace("_", ".")


def own_settings(
    given: Mapping[str, Any], is_own: Callable[[str], bool], *, prefix: str = "", separator: str = "."
) -> tuple[dict[str, Any], list[str]]:
    """Return the settings by our names, and a text for those that have no effect. None counts as not given.

    `is_own` says whether a client has a dotted key itself. Names get `separator`: the dot of a mapping, or the
    underscore of keyword arguments. Texts have `prefix` before them. Raises `ConfigError` for a refused setting.
    """
    own: dict[str, Any] = {}
    notes: dict[str, list[str]] = {}
    for name, value in _flat(given).items():
        key = name if is_own(name) else dotted_name(name)
        if value is None:
            continue
        if key in (_OAUTH_CALLBACK, _OAUTH_CONFIG) and given_oauth_callback(given) is not None:
            own[_spelt(_TOKEN_PROVIDER, separator)] = given_oauth_callback(given)
        elif key in IGNORED and not is_own(key):
            if value not in _OFF:
                notes.setdefault(IGNORED[key], []).append(f"{prefix}{name}")
        elif key in REFUSED and not is_own(key):
            if REFUSED[key].refuses(value):
                raise ConfigError(f"{prefix}{name}: {REFUSED[key].advice}")
        elif key in COUNTERPARTS and is_own(COUNTERPARTS[key].key):
            try:
                own[_spelt(COUNTERPARTS[key].key, separator)] = COUNTERPARTS[key].convert(value)
            except (TypeError, ValueError) as error:
                raise ConfigError(f"{prefix}{name} = {value!r}: {error}") from error
        else:
            own[_spelt(key, separator) if is_own(key) else name] = value
    return own, [f"{', '.join(names)} ({why})" for why, names in notes.items()]


_OAUTH_CALLBACK, _OAUTH_CONFIG, _TOKEN_PROVIDER = "oauth.cb", "sasl.oauthbearer.config", "sasl.oauth.token.provider"
_TOPIC_SETTINGS = ("default.topic.config", "default.topic.conf")
_OFF: tuple[object, ...] = ("", 0, "0", "false")
"""Values with which another library does not do either what an ignored setting is for."""


def _flat(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with confluent-kafka's settings of topics among them."""
    nested = [value for name, value in given.items() if dotted_name(name) in _TOPIC_SETTINGS]
    flat = {name: value for name, value in given.items() if dotted_name(name) not in _TOPIC_SETTINGS}
    for settings in nested:
        if not isinstance(settings, Mapping):
            raise ConfigError("default.topic.config: expected a mapping")
        flat = {**settings, **flat}
    return flat


def given_oauth_callback(given: Mapping[str, Any]) -> Callable[[], Any] | None:
    """Return confluent-kafka's `oauth_cb` as a callable without an argument; None without one."""
    dotted = {dotted_name(name): value for name, value in given.items()}
    callback = dotted.get(_OAUTH_CALLBACK)
    if callback is None:
        return None
    if not callable(callback):
        raise ConfigError("oauth_cb: expected a function that returns a token and its end in seconds since 1970")
    return lambda: callback(dotted.get(_OAUTH_CONFIG) or "")


def _spelt(key: str, separator: str) -> str:
    return key.replace(".", separator)
