"""What the tests with Spark share: one session, since it takes long to start."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A local session with the data source registered. Tests that use it are marked `spark` and of one xdist group."""
    from barnabas.pipeline.session import local_session

    log = tmp_path_factory.mktemp("spark") / "java.log"
    with local_session("barnabas tests", cores=2, memory="1g", log_file=log) as session:
        yield session
