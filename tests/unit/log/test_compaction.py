"""Compaction of a log: what goes, what stays, and where it stands afterwards (facts B5)."""

from support.cleaned_log import CleanedLogs, last_values, messages_of


def test_the_last_value_of_each_key_stays_where_it_was() -> None:
    logs = CleanedLogs()
    for number in range(40):
        logs.put((b"k%d" % (number % 5), b"v%d" % number), (b"once%d" % number, b"x"))
    before = messages_of(logs.log)
    wanted, size = last_values(logs.log), logs.log.size_bytes
    logs.clean()
    after = [message for message in messages_of(logs.log) if message.key != b"rolled"]
    assert {key: value for key, value in last_values(logs.log).items() if key != b"rolled"} == wanted
    assert [message for message in before if message in after] == after
    assert len(after) == 45
    assert logs.log.size_bytes < size
    (line,) = [line for line in logs.reports if "is compacted below" in line]
    assert "35 of" in line
