"""The Python and the commands of docs/audit.md run as written."""

import re
from pathlib import Path

import pytest
from support.command import barnabas_here

from barnabas.audit.reading import AuditReader
from barnabas.testing import TestBroker


def test_examples_of_audit_page_run(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (checkout / "docs" / "audit.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(python|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert [kind for kind, _ in blocks] == ["python", "console", "python", "console"]
    monkeypatch.chdir(tmp_path)
    with TestBroker() as broker:
        for kind, block in blocks:
            if kind == "python":
                exec(compile(block, "docs/audit.md", "exec"), {"bootstrap": broker.bootstrap})  # our own page
                continue
            for line in block.splitlines():
                words = line.replace("HOST:PORT", broker.bootstrap).removeprefix("$ barnabas ").split()
                assert barnabas_here(*words).stdout or "count" in words
        broker.assert_produced("invoices", ["for 3 orders"], committed=True)
        page = (tmp_path / "audit.html").read_text(encoding="utf-8")
        assert page.count("100 % of") == 2
        reader = AuditReader([broker.bootstrap])
        reader.read()
        reader.close()
        assert sorted(reader.totals.tiers("orders")) == ["broker", "consumer:billing", "producer"]
