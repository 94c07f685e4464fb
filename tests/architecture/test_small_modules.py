"""A small module that only one module of its folder imports belongs into that module, or has a reason."""

from pathlib import Path

import grimp

LINES = 60
REASONS = {
    "pipeline/queries/typed.py": "needs the extra registry; the module that uses it does not",
    "schemas/registry/listening.py": "an entry point, which a broker loads",
}
"""Each with the reason why it is a file. The list may only shrink."""


def test_small_module_with_one_importer_in_its_folder_has_a_reason(checkout: Path) -> None:
    graph = grimp.build_graph("barnabas", cache_dir=None)
    small = set()
    for module in graph.modules:
        path = checkout / (module.removeprefix("barnabas").strip(".").replace(".", "/") + ".py")
        importers = graph.find_modules_that_directly_import(module)
        if not path.is_file() or len(importers) != 1:
            continue
        if next(iter(importers)).rpartition(".")[0] != module.rpartition(".")[0]:
            continue
        if len(path.read_text(encoding="utf-8").splitlines()) < LINES:
            small.add(path.relative_to(checkout).as_posix())
    assert small - REASONS.keys() == set(), "merge these into the modules that import them, or give a reason"
    assert REASONS.keys() - small == set(), "these need no reason any longer"
