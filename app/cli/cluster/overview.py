"""`barnabas cluster overview`: brokers, topics and partitions, like `kcat -L`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....ports.error_codes import ErrorCode
from ....ports.report import counted
from ..options import AsJson, Bootstrap, open_admin, print_json
from ..tables import Section, list_text, show
from .status import NO_NODE

if TYPE_CHECKING:
    from ...clients.admin.admin import Admin


def overview(
    bootstrap: Bootstrap,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Only this one; may be repeated.")
    ] = None,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the brokers, and every partition of every topic with its leader and replicas, like `kcat -L`."""
    with open_admin(bootstrap) as admin:
        found = _ask(admin, topic, internal=internal)
    if as_json:
        print_json(found)
        return
    brokers, topics = found["brokers"], found["topics"]
    head = f"cluster {found['cluster_id']}, {counted(len(brokers), 'broker')}, {counted(len(topics), 'topic')}"
    sections = [
        Section(
            head,
            ("broker", "address", "rack", "controller"),
            [(b["id"], b["address"], b["rack"] or "-", "yes" if b["controller"] else "-") for b in brokers],
        )
    ]
    for each in topics:
        rows = [
            (
                p["partition"],
                "-" if p["leader"] == NO_NODE else p["leader"],
                list_text(p["replicas"]),
                list_text(p["isr"]),
                p["error"] or "",
            )
            for p in each["partitions"]
        ]
        wrong = any(p["leader"] == NO_NODE or len(p["isr"]) < len(p["replicas"]) for p in each["partitions"])
        title = f"{each['topic']}, {counted(len(rows), 'partition')}"
        sections.append(Section(title, ("partition", "leader", "replicas", "isr", "error"), rows, alarm=wrong))
    show(sections)


def _ask(admin: Admin, names: list[str] | None, *, internal: bool) -> dict[str, Any]:
    cluster = admin.describe_cluster()
    topics = admin.describe_topics(names) if names else admin.describe_topics()
    return {
        "cluster_id": cluster.cluster_id,
        "brokers": [
            {
                "id": node.node_id,
                "address": f"{node.host}:{node.port}",
                "rack": node.rack,
                "controller": node.node_id == cluster.controller_id,
            }
            for node in sorted(cluster.brokers, key=lambda node: node.node_id)
        ],
        "topics": [
            {
                "topic": topic.name,
                "internal": topic.internal,
                "partitions": [
                    {
                        "partition": each.partition,
                        "leader": each.leader,
                        "replicas": list(each.replicas),
                        "isr": list(each.isr),
                        "error": None if each.error is ErrorCode.NONE else each.error.name,
                    }
                    for each in sorted(topic.partitions, key=lambda each: each.partition)
                ],
            }
            for topic in sorted(topics, key=lambda topic: topic.name or "")
            if names or internal or not topic.internal
        ],
    }
