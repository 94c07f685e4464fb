"""Settings that pages for operators name are among those of docs/configuration.md, which is written from the code."""

import re

from support.documents import prose, read

from barnabas.core.cluster.features import SUPPORTED

PAGES = ("cli", "composing", "operations", "recovery", "reliability", "transactions", "troubleshooting")
FILES = {"coordination.db", "meta.properties", "partition.metadata"}
FEATURES = {*SUPPORTED, "metadata.version"}
KEY = re.compile(r"`([a-z]+(?:\.[a-z]+)+)(?:=[^`]*)?`")


def test_every_key_is_one_that_there_is() -> None:
    known = set(KEY.findall(read("docs/configuration.md"))) | FILES | FEATURES
    wrong = [
        f"docs/{page}.md: {key}"
        for page in PAGES
        for key in KEY.findall(prose(read(f"docs/{page}.md")))
        if key not in known and not key.startswith("barnabas.")
    ]
    assert wrong == []
