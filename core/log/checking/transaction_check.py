"""The transaction index of each segment, against the markers and the batches of transactions (facts B1, B3)."""

from ....ports.errors import ApiError
from ....ports.storage import File
from ....ports.words import Position
from ...message.batch_header import BatchHeader
from ...message.markers import read_marker
from ..aborted_index import ENTRY, VERSION, AbortedEntry
from ..producer_replay import MARKER_BYTES_MAX, take_in
from ..producer_state import ProducerStates


class TransactionCheck:
    """Told of every batch, segment after segment."""

    def __init__(self) -> None:
        self._states = ProducerStates()
        self._complete = True
        self._aborted: dict[int, AbortedEntry] = {}
        """In this segment, by the offset of the marker: as the batches tell it."""
        self._markers: dict[int, int] = {}
        """The producers of the other markers that say so, by offset: nothing is there of what they aborted."""

    def batch(self, file: File, position: int, header: BatchHeader) -> None:
        """Raises `StorageError`."""
        if not header.transactional:
            return
        marker = None
        if header.control:
            try:
                content = file.read(Position(position), min(header.size, MARKER_BYTES_MAX))
                marker = read_marker(content, header)
            except ApiError:
                return
        aborted = take_in(self._states, header, header.base_offset, marker, 0)
        if aborted is not None:
            self._aborted[header.base_offset] = aborted
        elif marker is not None and not marker.committed:
            self._markers[header.base_offset] = header.producer_id

    def hole(self) -> None:
        """Batches are missing: what is known from now on is not all."""
        self._complete = False

    def end_segment(self, index: bytes | None) -> tuple[str | None, bytes]:
        """(what is wrong with the index of the segment that ends here, what it should be)."""
        found, problem = _entries(index or b"")
        kept: dict[int, AbortedEntry] = {}
        for entry in found:
            wrong = self._problem(entry)
            problem = problem or wrong
            if wrong is None:
                kept[entry.last_offset] = entry
        for marker, entry in self._aborted.items():
            if marker not in kept:
                kept[marker] = entry
                problem = problem or f"the aborted transaction {entry.first_offset} to {marker} is missing"
        self._aborted.clear()
        self._markers.clear()
        content = b"".join(ENTRY.pack(VERSION, *kept[marker]) for marker in sorted(kept))
        return problem, content

    def _problem(self, entry: AbortedEntry) -> str | None:
        text = f"the aborted transaction {entry.first_offset} to {entry.last_offset} of producer {entry.producer_id}"
        expected = self._aborted.get(entry.last_offset)
        if expected is not None:
            same = expected == entry or (not self._complete and expected.producer_id == entry.producer_id)
            return (
                None
                if same
                else f"{text} is {expected.first_offset} to {expected.last_offset} of producer "
                + str(expected.producer_id)
            )
        if self._markers.get(entry.last_offset) == entry.producer_id:
            return None  # it began before the log does, or its batches were compacted
        return f"{text} has no marker there"


def _entries(index: bytes) -> tuple[list[AbortedEntry], str | None]:
    whole = len(index) - len(index) % ENTRY.size
    problem = f"{len(index)} bytes are no multiple of {ENTRY.size}" if whole < len(index) else None
    found: list[AbortedEntry] = []
    for number, (version, *fields) in enumerate(ENTRY.iter_unpack(index[:whole])):
        entry = AbortedEntry(*fields)
        if version != VERSION or not 0 <= entry.first_offset < entry.last_offset:
            problem = problem or f"entry {number} is not one of a transaction: {(version, *entry)}"
        elif found and entry.last_offset <= found[-1].last_offset:
            problem = problem or f"entry {number} does not come after the one before"
        else:
            found.append(entry)
    return found, problem
