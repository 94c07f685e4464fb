"""The matrix of clients and checks: the rows and columns of the table in docs/compatibility.md."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import attrs

FEATURES: Mapping[str, str] = {
    "produce": "produce, each codec with each acks",
    "compression": "compression passed through",
    "idempotent": "idempotent produce",
    "assigned": "consume by assignment, each codec",
    "headers": "headers",
    "nulls": "null keys and values",
    "large": "messages of 1 MB and 5 MB",
    "seek": "seek by time",
    "offsets": "list offsets",
    "create": "create topics",
    "alter": "add partitions, change settings",
    "delete": "delete topics",
    "configs": "describe settings",
    "group": "consume in a group",
    "commit": "commit and resume",
    "rebalance": "members join and leave",
    "cooperative": "the same, cooperatively",
    "mixed": "groups with other clients",
    "consumer-protocol": "consumer groups by KIP-848",
    "share": "share groups",
    "describe": "list and describe groups",
    "transactions": "transactions: commit, abort, read committed",
    "fencing": "fencing of an earlier producer",
    "transform": "consume, transform, produce in a transaction",
    "transactions-2": "transactions of version 2",
    "tls": "TLS",
    "mutual-tls": "TLS with client certificates",
    **{
        f"{protocol.lower()}-{mechanism.lower()}": f"{protocol}: {mechanism}"
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    },
    "sasl_plaintext-gssapi": "SASL_PLAINTEXT: GSSAPI",
    "sasl_ssl-gssapi": "SASL_SSL: GSSAPI",
    "delegation-token": "SASL_SSL: delegation token",
}

_TRANSACTIONS = ("transactions", "fencing", "transform", "transactions-2")
_VERSION_1 = {"transactions-2": "its transactions keep version 1 in the same cluster"}
_NO_SHARE = {"share": "has no share groups"}
_CLASSIC = {"consumer-protocol": "has the classic protocol only", **_NO_SHARE}
_NO_TOKEN = {"delegation-token": "does not log in by delegation tokens"}
_GSSAPI = ("sasl_plaintext-gssapi", "sasl_ssl-gssapi")
_ADMINISTRATION = ("create", "alter", "delete", "configs", "describe")


@attrs.frozen(kw_only=True)
class Entry:
    """One client in the matrix.

    lacks:  feature → why this client does not have it: "-" in the table.
    faults: feature → why it does not work: "no" in the table, and the test must fail.
    others: with whom its members share a group.
    """

    key: str
    title: str
    make: Callable[[str], Any]
    others: tuple[str, ...] = ("barnabas", "librdkafka")
    lacks: Mapping[str, str] = {}
    faults: Mapping[str, str] = {}

    @property
    def features(self) -> list[str]:
        return [feature for feature in FEATURES if feature not in self.lacks]


def _late(module: str, name: str) -> Callable[[str], Any]:
    """Imports the library when it is used."""

    def make(bootstrap: str) -> Any:
        return getattr(import_module(f"support.compat.{module}"), name)(bootstrap)

    return make


CLIENTS: Mapping[str, Entry] = {
    entry.key: entry
    for entry in (
        Entry(
            key="barnabas",
            title="Barnabas",
            make=_late("barnabas_client", "Barnabas"),
            others=("kafka-python", "librdkafka"),
        ),
        Entry(
            key="librdkafka",
            title="confluent-kafka",
            make=_late("librdkafka", "Librdkafka"),
            others=("barnabas", "kafka-python"),
            lacks={**_NO_TOKEN, **_VERSION_1, **dict.fromkeys(_GSSAPI, "its wheels are built without GSSAPI")},
        ),
        Entry(
            key="kafka-python",
            title="kafka-python",
            make=_late("kafka_python_client", "KafkaPython"),
            others=("barnabas", "librdkafka"),
            lacks={**_CLASSIC, **_VERSION_1, **_NO_TOKEN},
        ),
        Entry(
            key="aiokafka",
            title="aiokafka",
            make=_late("aiokafka_client", "AioKafka"),
            lacks={"cooperative": "its assignors are eager", **_CLASSIC, **_VERSION_1, **_NO_TOKEN},
        ),
        Entry(
            key="kafkajs",
            title="kafkajs",
            make=_late("kafkajs_client", "kafkajs"),
            lacks={
                "assigned": "reads in groups alone",
                "cooperative": "its assignors are eager",
                **_CLASSIC,
                **_VERSION_1,
                **dict.fromkeys(_GSSAPI, "has no GSSAPI"),
                **_NO_TOKEN,
            },
        ),
        Entry(
            key="java-3",
            title="Java 3.9",
            make=_late("java_client", "java_3"),
            lacks={"share": "has an early access version of share groups that Kafka 4 no longer has", **_VERSION_1},
        ),
        Entry(key="java-4", title="Java 4", make=_late("java_client", "java_4")),
        Entry(
            key="console",
            title="console tools",
            make=_late("console_tools", "ConsoleTools"),
            lacks={
                "share": "accept or release all that they show; tested apart",
                **dict.fromkeys(_TRANSACTIONS, "has no transactions"),
            },
        ),
        Entry(
            key="kcat",
            title="kcat",
            make=_late("kcat_client", "Kcat"),
            lacks={
                **dict.fromkeys(_ADMINISTRATION, "does not administer"),
                **dict.fromkeys(_TRANSACTIONS, "can only commit all that it is given"),
                **_CLASSIC,
                **_NO_TOKEN,
                **dict.fromkeys(
                    ("sasl_plaintext-oauthbearer", "sasl_ssl-oauthbearer"),
                    "Debian's has no tokens but unsecured ones",
                ),
                **dict.fromkeys(
                    (
                        f"{protocol}-scram-sha-{bits}"
                        for protocol in ("sasl_plaintext", "sasl_ssl")
                        for bits in (256, 512)
                    ),
                    "repeats its nonce, as librdkafka does before 2.6.1; Kafka 4 refuses that, too (CVE-2024-56128)",
                ),
            },
        ),
        Entry(
            key="franz-go",
            title="franz-go",
            make=_late("franz_go_client", "franz_go"),
            lacks={
                **dict.fromkeys((*_ADMINISTRATION, "offsets"), "administers by another module, kadm"),
                **dict.fromkeys(_GSSAPI, "logs in with Kerberos by another module, pkg/sasl/kerberos; not tested"),
            },
        ),
    )
}
