"""The settings of other Kafka clients, as the installed libraries name them."""

import ctypes
import inspect
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

JAVA = """
    acks allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset batch.size
    bootstrap.controllers bootstrap.servers buffer.memory check.crcs client.dns.lookup client.id client.rack
    compression.gzip.level compression.lz4.level compression.type compression.zstd.level config.providers
    connections.max.idle.ms default.api.timeout.ms delivery.timeout.ms enable.auto.commit enable.idempotence
    enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id
    group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes isolation.level
    key.deserializer key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection
    max.partition.fetch.bytes max.poll.interval.ms max.poll.records max.request.size metadata.max.age.ms
    metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters
    metrics.num.samples metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
    partitioner.ignore.keys receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms
    retries retry.backoff.max.ms retry.backoff.ms sasl.client.callback.handler.class sasl.jaas.config
    sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class
    sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url security.protocol security.providers send.buffer.bytes session.timeout.ms
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.cipher.suites
    ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password
    ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location
    ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
    ssl.truststore.type transaction.timeout.ms transaction.two.phase.commit.enable transactional.id value.deserializer
    value.serializer
"""
"""The settings of the Java clients of Kafka 4.3: ProducerConfig, ConsumerConfig and AdminClientConfig."""

CONFLUENT_PYTHON = (
    "error_cb throttle_cb stats_cb oauth_cb on_delivery on_commit logger default.topic.config "
    "key.serializer value.serializer key.deserializer value.deserializer partitioner"
)
"""The settings that confluent-kafka adds to librdkafka's."""


def kafka_python_settings() -> set[str]:
    kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")
    clients = (kafka.KafkaProducer, kafka.KafkaConsumer, kafka.KafkaAdminClient)
    return {name for client in clients for name in client.DEFAULT_CONFIG}


def aiokafka_settings() -> set[str]:
    aiokafka = pytest.importorskip("aiokafka", reason="aiokafka is not installed")
    clients = (aiokafka.AIOKafkaProducer, aiokafka.AIOKafkaConsumer)
    return {name for client in clients for name in inspect.signature(client).parameters} - {"topics"}


def confluent_kafka_settings() -> set[str]:
    """Return the settings that librdkafka prints, and those of its Python module."""
    confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    libraries = list(Path(confluent_kafka.__file__).parent.parent.glob("confluent_kafka.libs/librdkafka*"))
    if not libraries:
        pytest.skip("the wheel of confluent-kafka has no librdkafka beside it")
    librdkafka, libc = ctypes.CDLL(str(libraries[0])), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    libc.fclose.argtypes = librdkafka.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    with TemporaryDirectory() as folder:
        shown = Path(folder) / "properties.md"
        file = libc.fopen(str(shown).encode(), b"w")
        librdkafka.rd_kafka_conf_properties_show(file)
        libc.fclose(file)
        rows = re.findall(r"^([a-z_.]+) +\| +[PC*] +\|", shown.read_text(encoding="utf-8"), re.MULTILINE)
    return {*rows, *CONFLUENT_PYTHON.split()}
