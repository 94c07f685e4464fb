"""Write the tables of docs/coming-from-*.md from the tables of the code and the names of the installed libraries.

    python tools/foreign_names_pages.py

`tests/docs/test_coming_from.py` compares the pages with what this writes.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from barnabas.app.clients.shared.foreign_methods import (
    ADMIN,
    ASYNC_CONSUMER,
    CONSUMER,
    HANDLE,
    KEYWORDS,
    MESSAGE,
    PRODUCER,
    SHARE_CONSUMER,
    Names,
)
from barnabas.app.clients.shared.foreign_settings import (
    COUNTERPARTS,
    IGNORED,
    OTHER_NAMES,
    REFUSED,
    dotted_name,
)
from barnabas.app.config.security_settings import SecuritySettings

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
MARKS = "<!-- {0}:begin -->\n{1}<!-- {0}:end -->"
SPECIAL = {
    "oauth.cb": "`sasl_oauth_token_provider`",
    "default.topic.config": "its settings count as those of the client",
    "default.topic.conf": "its settings count as those of the client",
    "metadata.broker.list": "the first argument",
}


def library_settings(page: str) -> set[str]:
    """Return the settings of the library of a page, as it names them."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support import foreign_clients

    reads: dict[str, Callable[[], set[str]]] = {
        "kafka-python": foreign_clients.kafka_python_settings,
        "confluent-kafka": foreign_clients.confluent_kafka_settings,
        "aiokafka": foreign_clients.aiokafka_settings,
    }
    return reads[page]()


def settings_table(names: Iterable[str]) -> str:
    """Return the table of those settings that have another name, no effect, or no counterpart here."""
    rows: dict[str, list[str]] = {}
    for name in sorted(names):
        if text := _setting_text(dotted_name(name), "_" if "_" in name else "."):
            rows.setdefault(text, []).append(f"`{name}`")
    order = ("`", "the first", "its settings", "no effect", "refused")
    ranked = sorted(rows, key=lambda text: next(rank for rank, start in enumerate(order) if text.startswith(start)))
    return _table(("Setting", "Here"), [(", ".join(rows[text]), text) for text in ranked])


def _setting_text(key: str, separator: str) -> str:
    if key in SPECIAL:
        return SPECIAL[key]
    if key in OTHER_NAMES:
        return f"`{OTHER_NAMES[key].replace('_', separator)}`"
    if key in SecuritySettings.ALIASES:
        ours = SecuritySettings.ALIASES[key].replace("_", separator)
        return "" if dotted_name(ours) == key else f"`{ours}`"
    if key in COUNTERPARTS:
        return f"`{COUNTERPARTS[key].key}`, {COUNTERPARTS[key].note}"
    if key in IGNORED:
        return f"no effect: {_code(IGNORED[key])}"
    if key in REFUSED:
        harmless = [f"`{each}`" for each in REFUSED[key].harmless if each not in ("", "none")]
        unless = f" (but for {', '.join(harmless)})" if harmless else ""
        return f"refused{unless}: {_code(REFUSED[key].advice)}"
    return ""


def methods_table(classes: Mapping[str, tuple[Names, set[str]]], keywords: Iterable[tuple[str, str]] = ()) -> str:
    """Return the table of those names of a library that have another name here.

    classes:  what stands before the name → the table, and the names that the library has.
    keywords: methods of the consumer with keywords of the library.
    """
    rows = [
        (f"`{before}.{name}`", _code(names[name]))
        for before, (names, of_library) in classes.items()
        for name in sorted(names)
        if name in of_library
    ]
    rows += [(f"`consumer.{method}({name}=)`", _code(KEYWORDS[method][name])) for method, name in keywords]
    return _table(("There", "Here"), rows)


def _code(text: str) -> str:
    """Return a text with its calls, settings and arguments as code."""
    call = r"[A-Za-z_.]+\((?:[^()]|\([^()]*\))*\)(?:\.\w+(?:\([^()]*\))?|\[[^\]]*\]\.\w+)*"
    setting = r"(?<![\w.])[a-z]+(?:\.[a-z*]+)+(?:=\w+)?(?![\w(])|\b[a-z_]+=(?:\"\w+\"|\w+)?(?=[ ;,.]|$)"
    dotted = r"\b(?:Producer|Consumer|message|consumer|group_metadata)\.\w+"
    return re.sub(f"({call}|{dotted}|{setting}|sasl_oauth_token_provider)", r"`\1`", text).replace("|", r"\|")


def _table(head: tuple[str, str], rows: Iterable[tuple[str, str]]) -> str:
    lines = [f"| {head[0]} | {head[1]} |", "|---|---|", *(f"| {one} | {other} |" for one, other in rows)]
    return "\n".join(lines) + "\n"


def _public(path: str) -> set[str]:
    import importlib

    module, _, name = path.rpartition(".")
    return {each for each in dir(getattr(importlib.import_module(module), name)) if not each.startswith("_")}


def tables_of(page: str) -> dict[str, str]:
    """Return the tables of a page by the name of their marks."""
    found = {"settings": settings_table(library_settings(page))}
    timeouts = [("poll", "timeout_ms"), ("poll", "max_records"), ("commit", "offsets"), ("commit", "timeout_ms")]
    if page == "kafka-python":
        found["methods"] = methods_table(
            {
                "producer": (PRODUCER, _public("kafka.KafkaProducer")),
                "producer.send(...)": (HANDLE, _public("kafka.producer.future.FutureRecordMetadata")),
                "consumer": (CONSUMER, _public("kafka.KafkaConsumer")),
                "message": (MESSAGE, _public("kafka.consumer.fetcher.ConsumerRecord")),
                "admin": (ADMIN, _public("kafka.KafkaAdminClient")),
            },
            [*timeouts, ("close", "autocommit"), ("close", "timeout_ms")],
        )
    elif page == "confluent-kafka":
        keywords = [("commit", "message"), ("commit", "offsets"), ("commit", "asynchronous")]
        found["methods"] = methods_table(
            {
                "producer": (PRODUCER, _public("confluent_kafka.Producer")),
                "consumer": (CONSUMER, _public("confluent_kafka.Consumer")),
                "share_consumer": (SHARE_CONSUMER, _public("confluent_kafka.ShareConsumer")),
                "message": (MESSAGE, _public("confluent_kafka.Message")),
                "admin": (ADMIN, _public("confluent_kafka.admin.AdminClient")),
            },
            [("subscribe", "on_assign"), ("subscribe", "on_revoke"), *keywords],
        )
    else:
        record = _public("aiokafka.structs.ConsumerRecord") | {"timestamp", "checksum"}
        record |= {"serialized_key_size", "serialized_value_size"}
        found["methods"] = methods_table(
            {
                "producer": (PRODUCER, _public("aiokafka.AIOKafkaProducer") - {"send_and_wait"}),
                "consumer": (ASYNC_CONSUMER, _public("aiokafka.AIOKafkaConsumer")),
                "message": (MESSAGE, record),
            }
        )
    return found


def with_tables(page: str, text: str) -> str:
    """Return the text of a page with its present tables. Raises `LookupError` for a page without the marks."""
    for name, table in tables_of(page).items():
        pattern = re.compile(MARKS.format(name, ".*?"), re.DOTALL)
        if not pattern.search(text):
            raise LookupError(f"docs/coming-from-{page}.md has no marks of {name}")
        text = pattern.sub(lambda _, name=name, table=table: MARKS.format(name, table), text)
    return text


PAGES = ("kafka-python", "confluent-kafka", "aiokafka")


def main() -> None:
    """Write the tables of all pages."""
    for page in PAGES:
        file = DOCS / f"coming-from-{page}.md"
        file.write_text(with_tables(page, file.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
