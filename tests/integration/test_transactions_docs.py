"""The Python of docs/transactions.md runs as written."""

import re
from pathlib import Path

from barnabas.testing import TestBroker


def test_examples_of_transactions_page_run(checkout: Path) -> None:
    text = (checkout / "docs" / "transactions.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    with TestBroker() as broker:
        for block in blocks:
            exec(compile(block, "docs/transactions.md", "exec"), {"bootstrap": broker.bootstrap})  # our own page
        broker.assert_produced("stock", ["-12"], committed=True)
        broker.assert_produced("invoices", ["for 12 apples"], committed=True)
        with broker.admin() as admin:
            assert [each.offset for each in admin.group_offsets("invoicing").values()] >= [1]
