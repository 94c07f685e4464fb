"""Topic ids decide which messages clients may get from topics with one name."""

from chaos.recreated import LATE_S, TopicsOfOneName

OLD, NEW = b"o" * 16, b"n" * 16


def _recreated() -> TopicsOfOneName:
    """`OLD` was deleted at 10 s; a late broker then acknowledged one message for it, others went to `NEW`."""
    topics = TopicsOfOneName()
    for value, topic_id, now in (("a", OLD, 1.0), ("late", OLD, 10.1), ("b", NEW, 11.0)):
        topics.attempted[value].add(topic_id)
        if value == "late":
            topics.deleted[OLD] = 10.0
        assert topics.note_acknowledged(value, topic_id, now) is None
    topics.attempted["b"].add(OLD)  # refused there
    return topics


def test_late_broker_of_a_deleted_topic_is_counted_and_is_no_anomaly() -> None:
    topics = _recreated()
    assert topics.note_read("a", OLD, 12.0) is None
    assert topics.late == {"messages acknowledged by a deleted topic": 1, "messages read of a deleted topic": 1}


def test_reader_must_be_given_what_the_topic_of_this_id_acknowledged() -> None:
    topics = _recreated()
    assert topics.wanted(NEW) == {"b"}
    assert topics.note_read("b", NEW, 12.0) is None


def test_message_of_the_deleted_topic_in_the_next_one_is_an_anomaly() -> None:
    assert "which was sent to" in str(_recreated().note_read("a", NEW, 12.0))
    assert "which was sent to no topic" in str(_recreated().note_read("unknown", NEW, 12.0))


def test_deleted_topic_that_is_served_for_long_is_an_anomaly() -> None:
    late = 10.0 + LATE_S + 1
    assert "after its deletion" in str(_recreated().note_read("a", OLD, late))
    assert "after its deletion" in str(_recreated().note_acknowledged("c", OLD, late))
