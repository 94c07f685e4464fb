"""The messages quoted in docs/troubleshooting.md are in the code, and its commands run as written."""

import re
from pathlib import Path

import pytest
from support.doc_commands import Reader
from support.documents import CHECKOUT, blocks, read
from support.waiting import PATIENCE_S

from barnabas import Broker, Consumer, Producer

PAGE = "docs/troubleshooting.md"
ROOMS = ("app", "adapters", "core", "pipeline")


def test_the_first_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(tmp_path, monkeypatch)
    with Broker(tmp_path / "data", group_initial_rebalance_delay_ms=0) as broker:
        with Producer(broker) as producer:
            producer.send("orders", b"x").result(PATIENCE_S)
        with Consumer(broker, group_id="readers", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("orders")
            assert consumer.poll(PATIENCE_S) is not None
        (looks,) = blocks(PAGE, "sh")
        assert len(reader.run(looks, broker.bootstrap)) == 4


def test_each_text_is_one_that_the_code_says() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for room in ROOMS for path in (CHECKOUT / room).rglob("*.py"))
    sources = re.sub(r'"\s*\n\s*f?"', "", sources)  # texts over several lines
    quoted = re.findall(r'"([^"]+)"', re.sub(r"^```.*?^```", "", read(PAGE), flags=re.DOTALL | re.MULTILINE))
    assert len(quoted) > 15
    parts = {text: [part.strip(" ,:;.") for part in text.split("…") if len(part.strip(" ,:;.")) > 2] for text in quoted}
    assert [text for text, each in parts.items() if any(part not in sources for part in each)] == []


def test_error_codes_are_those_there_are() -> None:
    from barnabas.ports.error_codes import ErrorCode

    named = set(re.findall(r"\b[A-Z]{3,}(?:_[A-Z]+)+\b", re.sub(r"`[^`]*`", "", read(PAGE))))
    assert named
    assert named <= {code.name for code in ErrorCode}
