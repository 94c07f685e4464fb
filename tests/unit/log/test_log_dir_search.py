"""Every short history of a topic that is deleted and created again on one broker (`support/log_dir_search.py`)."""

import pytest
from support.log_dir_search import BEGINNINGS, BrokenPromise, search
from support.long_tests import first_is_quick

from barnabas.core.log.manager.data_folder import DataFolder
from barnabas.core.log.manager.folder_ownership import FolderOwnership


@pytest.mark.parametrize("knows_deleted", first_is_quick([True, False]))
@pytest.mark.parametrize("beginning", range(len(BEGINNINGS)))
def test_no_short_history_of_a_topic_name_breaks_a_promise(beginning: int, knows_deleted: bool) -> None:
    played = search(4 if beginning == 0 else 2, BEGINNINGS[beginning], knows_deleted=knows_deleted)
    print(f"{played} histories after {', '.join(BEGINNINGS[beginning]) or 'nothing'}")
    assert played > 50


@pytest.mark.slow
@pytest.mark.parametrize("knows_deleted", [True, False])
@pytest.mark.parametrize("beginning", range(len(BEGINNINGS)))
def test_no_longer_history_of_a_topic_name_breaks_a_promise(beginning: int, knows_deleted: bool) -> None:
    played = search(5 if beginning == 0 else 4, BEGINNINGS[beginning], knows_deleted=knows_deleted)
    print(f"{played} histories after {', '.join(BEGINNINGS[beginning]) or 'nothing'}")
    assert played > 1_500


def test_search_finds_a_checkpoint_that_names_the_topic_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clean stop, the topic replaced while the broker is down, and a kill soon after the start."""
    monkeypatch.setattr(DataFolder, "write_loaded_checkpoints", lambda _: None)
    beginning = (*BEGINNINGS[3], "make", "append", "work")
    with pytest.raises(BrokenPromise, match="high watermark 1, which was 0 at most"):
        search(1, beginning, knows_deleted=True)


def test_search_finds_a_log_without_its_topic_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill before the partition.metadata of a log that a start created; then the topic is replaced."""
    monkeypatch.setattr(FolderOwnership, "write_unflushed_metadata", lambda _: None)
    monkeypatch.setattr(FolderOwnership, "_write_unflushed", lambda *_: None)
    with pytest.raises(BrokenPromise, match="of 0 messages after a kill"):
        search(2, ("create", "kill", "append"), knows_deleted=True)
