"""Apache Kafka's Java client of two generations, in a process of Java."""

import os
from pathlib import Path

from .fetched import BUILD, fetched, jars, need, run
from .logins import java_settings
from .remote import DriverProcess, RemoteClient

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
"""For processes of Java that do not live long."""
_KAFKA = "4.3.1"
_CLIENTS = {3: "org.apache.kafka:kafka-clients:3.9.2", 4: f"org.apache.kafka:kafka-clients:{_KAFKA}"}
_COMMON = (
    "com.github.luben:zstd-jni:1.5.6-10",
    "at.yawk.lz4:lz4-java:1.10.2",
    "org.xerial.snappy:snappy-java:1.1.10.7",
    "org.slf4j:slf4j-api:1.7.36",
    "org.slf4j:slf4j-nop:1.7.36",
    "org.bitbucket.b_c:jose4j:0.9.6",
    "com.fasterxml.jackson.core:jackson-databind:2.21.2",
    "com.fasterxml.jackson.core:jackson-core:2.21.2",
    "com.fasterxml.jackson.core:jackson-annotations:2.21",
)
_PARTS = (
    "tools tools-api server server-common metadata storage storage-api raft coordinator-common group-coordinator "
    "group-coordinator-api share-coordinator transaction-coordinator"
)
_TOOLS = (
    *(f"org.apache.kafka:kafka-{part}:{_KAFKA}" for part in _PARTS.split()),
    f"org.apache.kafka:kafka_2.13:{_KAFKA}",
    "org.scala-lang:scala-library:2.13.17",
    "com.typesafe.scala-logging:scala-logging_2.13:3.9.6",
    "com.yammer.metrics:metrics-core:2.2.0",
    "commons-validator:commons-validator:1.10.1",
    "org.apache.logging.log4j:log4j-api:2.25.3",
    "org.apache.logging.log4j:log4j-core:2.25.3",
    "net.sf.jopt-simple:jopt-simple:5.0.4",
    "net.sourceforge.argparse4j:argparse4j:0.7.0",
    "com.google.re2j:re2j:1.8",
    "com.fasterxml.jackson.dataformat:jackson-dataformat-csv:2.21.2",
    "com.fasterxml.jackson.datatype:jackson-datatype-jdk8:2.21.2",
)
"""The libraries of the console tools, one by one: kafka-tools would also bring Kafka Connect."""
_BROKER = (
    "org.pcollections:pcollections:4.0.2",
    "org.hdrhistogram:HdrHistogram:2.2.2",
    "com.github.ben-manes.caffeine:caffeine:3.2.3",
    "com.dynatrace.hash4j:hash4j:0.22.0",
)
"""The further libraries of a broker."""
_JAXB = "javax.xml.bind:jaxb-api:2.3.1"
"""A part of Java 8 that the first releases use."""
_SOURCES = [Path(__file__).parent / "java" / name for name in ("Driver.java", "Tool.java", "Transactions.java")]
_SHARING = Path(__file__).parent / "java" / "Sharing.java"
"""The source that only generation 4 compiles."""


def java_classpath(generation: int) -> str:
    """Return the class path of the driver and the libraries of that generation, 3 or 4. Raises `Unavailable`."""
    need("java", "javac", "mvn")
    libraries = [_CLIENTS[generation], *_COMMON, *(_TOOLS if generation == 4 else ())]
    folder = jars(f"java-{generation}", libraries)
    sources = [*_SOURCES, *([_SHARING] if generation == 4 else ())]

    def compile_driver(into: Path) -> None:
        command = ["javac", "-nowarn", "-cp", f"{folder}/*", "-d", str(into), *map(str, sources)]
        run(command, into, "the driver could not be compiled")

    recipe = "\n".join([*libraries, *(source.read_text(encoding="utf-8") for source in sources)])
    return f"{fetched(f'java-{generation}-driver', recipe, compile_driver)}:{folder}/*"


def broker_classpath(release: str | None = None) -> str:
    """Return the class path of Apache Kafka's broker, of an earlier release with its version. Raises `Unavailable`."""
    need("java", "mvn")
    if release is not None:
        libraries = [f"org.apache.kafka:kafka_2.13:{release}"]
        if release.startswith(("0.", "1.")):
            libraries = [f"org.apache.kafka:kafka_2.12:{release}", _JAXB]
        return f"{jars(f'kafka-{release}', libraries, with_what_they_need=True)}/*"
    return f"{jars('kafka-broker', [_CLIENTS[4], *_COMMON, *_TOOLS, *_BROKER])}/*"


def tiered_storage_classpath() -> str:
    """Return the jars of Kafka's `LocalTieredStorage`, a remote storage in a folder. Raises `Unavailable`."""
    need("java", "mvn")
    return f"{jars('kafka-storage-test', [f'org.apache.kafka:kafka-storage:{_KAFKA}:test'])}/*"


def kerberos_options() -> list[str]:
    """Java does not look at KRB5_CONFIG, where the other libraries find the realm of a test."""
    found = os.environ.get("KRB5_CONFIG")
    return [f"-Djava.security.krb5.conf={found}"] if found else []


def _client(bootstrap: str, generation: int, store_type: str) -> RemoteClient:
    command = ["java", *QUICK, *kerberos_options(), "-cp", java_classpath(generation), "Driver"]
    log = BUILD / f"java-{generation}" / f"{os.getpid()}.log"
    process = DriverProcess(command, log, os.environ)
    return RemoteClient(process, bootstrap, lambda login: java_settings(login, store_type=store_type))


def java_3(bootstrap: str) -> RemoteClient:
    """Raises `Unavailable`."""
    return _client(bootstrap, 3, "PKCS12")


def java_4(bootstrap: str) -> RemoteClient:
    """Raises `Unavailable`."""
    return _client(bootstrap, 4, "PEM")
