"""The entry of one API in the table of the protocol."""

from collections.abc import Callable
from typing import Any

from attrs import evolve

from ...ports.error_codes import ErrorCode
from ...ports.errors import Malformed
from ...ports.values import frozen
from .schema import NEWEST, FieldCodec
from .topic_ids import Resolved, TopicName
from .wire import CompactReader, CompactWriter, Reader, Writer


@frozen(kw_only=True)
class Api:
    """One API: its key, the versions we speak (both ends), and how its request and its result travel.

    advertised_from: the lowest version named in ApiVersions, where it is lower than what we speak.
    least_version:   the lowest version that can express a request; a client refuses to send less.
    most_version:    the highest version that can express a request; a client does not send more.
    by_partition:    request and result have `partitions`, and a client gets its results in the order of the request.
    long_answers:    a small request can get a long answer, which is written in steps; nothing further is taken from
                     its connection meanwhile.
    result_of:       how a client reads the result in this version, where the response lacks what the request said.
    ids_since:       from this version on, request and result identify topics by id (`topic_ids`).
    resolved:        the request with the names of its topics, in these versions, and how its result becomes the answer.
    by_id:           the request with the ids of its topics, as a client sends it in these versions, and how the answer
                     becomes its result.
    named:           the request with the names of the topics that it identifies by id only.
    is_own:          Kafka does not have this API; only our own clients find it in ApiVersions.
    is_unlisted:     ApiVersions does not name it; a client that asks all the same gets an answer.
    completed:       the result as a client gets it, for (request, result as read): what is not in the answer because
                     the request said it. May raise `Malformed`.
    """

    key: int
    versions: tuple[int, int]
    flexible_from: int
    request_type: type[Any]
    request: FieldCodec[Any]
    result: FieldCodec[Any]
    advertised_from: int | None = None
    least_version: Callable[[Any], int] | None = None
    most_version: Callable[[Any], int] | None = None
    by_partition: bool = False
    is_own: bool = False
    is_unlisted: bool = False
    long_answers: bool = False
    result_of: Callable[[Any, int], FieldCodec[Any]] | None = None
    ids_since: int = NEWEST + 1
    resolved: Callable[[Any, TopicName], Resolved] | None = None
    by_id: Callable[[Any], Resolved] | None = None
    named: Callable[[Any, Callable[[bytes], str]], Any] | None = None
    completed: Callable[[Any, Any], Any] | None = None

    @property
    def name(self) -> str:
        return self.request_type.__name__

    @property
    def advertised(self) -> tuple[int, int]:
        low, high = self.versions
        return (low if self.advertised_from is None else self.advertised_from, high)

    def reader(self, version: int, frame: memoryview, position: int, items_max: int) -> Reader:
        kind = CompactReader if version >= self.flexible_from else Reader
        return kind(frame, position, items_max)

    def writer(self, version: int) -> Writer:
        return CompactWriter() if version >= self.flexible_from else Writer()


def in_order(request: Any, result: Any) -> Any:
    """Return the result with its partitions in the order of the request; brokers may answer in another (Produce
    does)."""
    asked, answered = request.partitions, result.partitions
    if getattr(result, "error", ErrorCode.NONE) is not ErrorCode.NONE:
        return result
    if len(asked) == len(answered) and all(
        a.partition == b.partition and a.topic == b.topic for a, b in zip(asked, answered, strict=True)
    ):
        return result
    found = {(part.topic, part.partition): part for part in answered}
    try:
        return evolve(result, partitions=[found[part.topic, part.partition] for part in asked])
    except KeyError as error:
        raise Malformed(f"the response lacks {error.args[0]}") from None
