import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.pipeline.source.exactly_once import (
    Decision,
    TaskTransaction,
    WriteTarget,
    abort,
    note_texts,
    parse_notes,
)
from barnabas.ports.errors import BarnabasError
from barnabas.ports.types import TopicPartition

TASKS = st.dictionaries(st.integers(1, 10**6), st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1)))


@given(TASKS, st.integers(0, 2**63 - 1))
def test_a_note_says_what_was_decided(tasks: dict[int, tuple[int, int]], version: int) -> None:
    texts = note_texts(Decision(version, False, tasks, ()))
    places = [TopicPartition("t", number) for number in range(len(texts))]
    decision = Decision(version, False, dict(sorted(tasks.items())), places)
    older = {TopicPartition("t", len(texts)): (version - 1, "1/1 done")} if version else {}
    noted = {place: (version, text) for place, text in zip(places, texts, strict=True)}
    assert parse_notes({**noted, **older}) == decision
    done = Decision(version, True, decision.tasks, places)
    assert parse_notes(dict(zip(places, [(version, text) for text in note_texts(done)], strict=True))) == done


def test_a_note_of_many_tasks_takes_several_places_that_brokers_accept() -> None:
    tasks = dict.fromkeys(range(1, 1001), (2**63 - 1, 2**15 - 1))
    texts = note_texts(Decision(0, False, tasks, ()))
    assert len(texts) > 1
    assert max(map(len, texts)) <= 4096


@pytest.mark.parametrize("text", ["", "mine", "1/2 decided", "1/1 done 3:4", "2/2 done"])
def test_offset_metadata_of_other_application_raises_error(text: str) -> None:
    with pytest.raises(BarnabasError, match="take another txnAppId"):
        parse_notes({TopicPartition("t", 0): (5, text)})


def test_parse_notes_without_offsets_returns_none() -> None:
    assert parse_notes({}) is None


def test_ids_of_tasks() -> None:
    target = WriteTarget(bootstrap="h:1", name="job", producer={})
    prepared = target.prepared(3, (5, 6))
    assert target.task_of(prepared.transactional_id) == 3
    assert [target.task_of(each) for each in ("job", "job-", "job-x", "other-1", "job-1-2")] == [None] * 5


def test_failed_abort_leaves_no_other_transaction_open(monkeypatch: pytest.MonkeyPatch) -> None:
    target = WriteTarget(bootstrap="h:1", name="job", producer={})
    aborted: list[int] = []

    class _Fake:
        """In place of an admin, and of the producer of a task, the first of which cannot be reached."""

        def __init__(self, task: int = -1) -> None:
            self._task = task

        def __enter__(self) -> "_Fake":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def group_offsets(self, _name: str, *, require_stable: bool) -> dict[TopicPartition, object]:
            assert require_stable
            return {}

        def resume_transaction(self, _prepared: object) -> None:
            if self._task == 0:
                raise BarnabasError("its coordinator is away")

        def abort_transaction(self) -> None:
            aborted.append(self._task)

    monkeypatch.setattr(WriteTarget, "admin", lambda _: _Fake())
    monkeypatch.setattr(WriteTarget, "open", lambda _, task: _Fake(task))
    with pytest.raises(BarnabasError, match="its coordinator is away"):
        abort(target, [TaskTransaction(task, target.prepared(task, (5, task))) for task in range(3)])
    assert aborted == [1, 2]
