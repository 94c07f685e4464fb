"""Source of the rows of a load."""

from collections.abc import Mapping

from attrs import frozen

from ..topics.model import Where


@frozen
class LoadSource:
    """A cluster, and how its topics are read. `decoding` has the data source's options of typed values; without any
    they are bytes."""

    where: Where
    client: Mapping[str, str]
    fail_on_data_loss: bool
    skip_damaged: bool
    rows_per_file: int
    decoding: Mapping[str, str] = {}
