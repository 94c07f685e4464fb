"""The tables of docs/coming-from-*.md are those of the code, for the names of the installed libraries."""

import importlib.util
from types import ModuleType

import pytest
from support.documents import CHECKOUT, read


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("foreign_names_pages", CHECKOUT / "tools" / "foreign_names_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("library", ["kafka-python", "confluent-kafka", "aiokafka"])
def test_tables_of_a_page_are_those_of_the_code(library: str) -> None:
    pytest.importorskip(library.replace("-python", "").replace("-", "_"), reason=f"{library} is not installed")
    page = read(f"docs/coming-from-{library}.md")
    assert page == _tool().with_tables(library, page), "run python tools/foreign_names_pages.py"
