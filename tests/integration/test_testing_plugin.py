"""The pytest plugin, as its users' test runs see it."""

import sys
import textwrap

import pytest

# Loaded here, they need not be loaded again by each of the test runs in this process.
from barnabas import Admin, Consumer, Producer, SimpleConsumer  # noqa: F401
from barnabas.testing import running

pytest_plugins = "pytester"

PLAIN = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:asyncio")
TESTS = """
    import pytest
    from barnabas.testing import TestBroker, assert_produced

    seen = []

    def test_a_topic_of_its_own(barnabas_broker, barnabas_topic, barnabas_producer):
        seen.append(barnabas_topic)
        barnabas_producer.send(barnabas_topic, b"one").result(120)
        assert_produced(barnabas_topic, ["one"])
        assert barnabas_broker.produced(barnabas_topic)[0].topic == barnabas_topic

    @pytest.mark.barnabas_topic(partitions=3, retention_ms=1000)
    def test_topic_marker_sets_partitions_and_configs(barnabas_broker, barnabas_topic):
        assert barnabas_topic not in seen
        assert all(not barnabas_broker.produced(topic) for topic in seen)  # it is gone
        with barnabas_broker.admin() as admin:
            assert len(admin.describe_topics([barnabas_topic])[0].partitions) == 3
            assert admin.topic_overrides(barnabas_topic) == {"retention.ms": "1000"}

    @pytest.mark.parametrize("name", ["ä b/c", "x" * 300])
    def test_any_name_will_do(name, barnabas_topics, barnabas_group):
        first, second = barnabas_topics(), barnabas_topics(partitions=2, configs={"retention.ms": -1})
        assert len({first, second, barnabas_group}) == 3

    def test_group_fixture_names_consumer_group(barnabas_broker, barnabas_topic, barnabas_consumer, barnabas_group):
        barnabas_broker.produce(barnabas_topic, ["a"])
        barnabas_consumer.subscribe([barnabas_topic])
        assert barnabas_consumer.poll(120).value == b"a"
        with barnabas_broker.admin() as admin:
            assert len(admin.describe_groups([barnabas_group])[0].members) == 1
"""


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runs in here know nothing of the broker that this test run may have."""
    monkeypatch.setattr(running, "_running", [])


def test_pytest_plugin_fixtures_pass_example_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    pytester.runpytest_inprocess(*PLAIN, "--strict-markers", "-W", "error").assert_outcomes(passed=5)


@pytest.mark.slow
def test_pytest_plugin_starts_one_broker_per_xdist_worker(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each worker has a broker."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # others take longer to load than the tests to run
    pytester.makepyfile(TESTS)
    plugins = ("-p", "xdist", "-p", "barnabas.testing.pytest_plugin", "-p", "no:cacheprovider")
    pytester.runpytest_subprocess("-n", "2", *plugins).assert_outcomes(passed=5)


def test_changes_of_a_test_to_the_broker_are_undone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_first_test_disturbs_broker(barnabas_broker, barnabas_topic, barnabas_producer):
            barnabas_broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER")
            barnabas_broker.faults.refuse()
            barnabas_broker.jump(days=8)
            barnabas_producer.send(barnabas_topic, b"never")
            barnabas_broker.stop()

        def test_second_test_gets_healthy_broker(barnabas_broker, barnabas_topic):
            assert barnabas_broker.running
            assert barnabas_broker.faults.active == ()
            with barnabas_broker.producer() as producer:
                producer.send(barnabas_topic, b"one").result(120)
            barnabas_broker.jump(seconds=10)
            barnabas_broker.assert_produced(barnabas_topic, ["one"])  # it is not a week old
        """
    )
    pytester.runpytest_inprocess(*PLAIN, "-W", "error", "--durations=5").assert_outcomes(passed=2)


def test_settings_of_the_ini_file_and_the_command_line(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nbarnabas_config =\n  num.partitions=3\n  message.max.bytes = 1000\n")
    pytester.makepyfile(
        """
        def test_broker_has_configured_settings(barnabas_broker):
            config = barnabas_broker.config
            assert (config.num_partitions, config.message_max_bytes) == (5, 1000)
        """
    )
    pytester.runpytest_inprocess(*PLAIN, "--barnabas-set", "num.partitions=5").assert_outcomes(passed=1)
    done = pytester.runpytest_inprocess(*PLAIN, "--barnabas-set", "num.partitions")
    done.stdout.fnmatch_lines(["*barnabas: 'num.partitions' is not KEY=VALUE*"])


def test_settings_by_a_fixture(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def barnabas_config(barnabas_config):
            return {**barnabas_config, "num.partitions": 7}
        """
    )
    pytester.makepyfile(
        "def test_broker_has_configured_settings(barnabas_broker): assert barnabas_broker.config.num_partitions == 7"
    )
    pytester.runpytest_inprocess(*PLAIN).assert_outcomes(passed=1)


def test_a_failure_shows_the_difference_and_no_frames_of_ours(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from barnabas.testing import TestBroker, assert_produced  # TestBroker is not collected

        def test_assert_produced_fails(barnabas_broker, barnabas_topic):
            barnabas_broker.produce(barnabas_topic, ["other"])
            assert_produced(barnabas_topic, ["one"], timeout=0)

        def test_assert_produced_by_broker(barnabas_broker, barnabas_topic):
            barnabas_broker.assert_produced(barnabas_topic, ["one"], timeout=0)
        """
    )
    done = pytester.runpytest_inprocess(*PLAIN, "-W", "error")
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(
        [
            "*test_assert_produced_fails-*: 1 of 1 expected message is missing (no further*)",
            "*+ 0-0: value='other'",
            "*- value='one'",
        ]
    )
    done.stdout.no_fnmatch_line("*produced.py*")


def test_ini_file_sets_how_long_assert_produced_waits(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_message_is_missing(barnabas_broker, barnabas_topic):
            barnabas_broker.assert_produced(barnabas_topic, ["one"])
        """
    )
    before = running.patience_s()
    pytester.makeini("[pytest]\nbarnabas_timeout = 0.02")
    done = pytester.runpytest_inprocess(*PLAIN)
    done.stdout.fnmatch_lines(["*1 of 1 expected message is missing (waited 0.02 s)"])
    assert running.patience_s() == before, "the next run has its own"
    pytester.makeini("[pytest]\nbarnabas_timeout = soon")
    done = pytester.runpytest_inprocess(*PLAIN)
    done.stderr.fnmatch_lines(["*barnabas_timeout='soon' is not a number of seconds"])


@pytest.mark.slow
def test_a_run_that_does_not_use_it_does_not_load_it(pytester: pytest.Pytester) -> None:
    script = """
        import sys
        import pytest
        off = [part for name in ("randomly", "hypothesispytest", "xdist") for part in ("-p", f"no:{name}")]
        pytest.main(["-q", "-p", "no:cacheprovider", "--collect-only", *off])
        loaded = sorted(name for name in sys.modules if name.split(".")[0] == "barnabas")
        print("loaded:", *loaded)
    """
    path = pytester.makepyfile(run=textwrap.dedent(script))
    done = pytester.run(sys.executable, path)
    done.stdout.fnmatch_lines(["loaded: barnabas barnabas.testing barnabas.testing.pytest_plugin"])
