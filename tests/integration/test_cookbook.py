"""The recipes of docs/cookbook, saved to files and run as they are, with the real frameworks."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.doc_commands import ADDRESS
from support.documents import blocks
from support.waiting import PATIENCE_S

from barnabas.testing import TestBroker

PAGES = ("workers", "frameworks", "testing")


def recipes(page: str, bootstrap: str) -> Mapping[str, str]:
    """Return the files of a page, with the address of a broker."""
    found = {}
    for block in blocks(f"docs/cookbook/{page}.md"):
        title = re.fullmatch(r'python title="(\w+\.py)"', block.language)
        assert title is not None, f"{block} needs a title"
        found[title[1]] = block.code.replace(ADDRESS, bootstrap)
    return found


def save(page: str, bootstrap: str, folder: Path) -> None:
    for name, code in recipes(page, bootstrap).items():
        (folder / name).write_text(code, encoding="utf-8")


@contextmanager
def running(folder: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, *words], cwd=folder, env=environment, stdout=output, stderr=output, text=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def run(folder: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def values(broker: TestBroker, topic: str) -> list[bytes | None]:
    with broker.consumer() as consumer:
        consumer.assign(topic, position="earliest")
        return [message.value for message in consumer.messages(stop_at_end=True)]


def wait_for(broker: TestBroker, topic: str, count: int, process: "subprocess.Popen[str]", folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(values(broker, topic)) < count:
        assert process.poll() is None, (folder / "output.txt").read_text()
        assert time.monotonic() < deadline, (folder / "output.txt").read_text()
        time.sleep(0.1)


def test_worker_sends_bad_messages_to_dead_letters_and_leaves_its_group(tmp_path: Path) -> None:
    with TestBroker() as broker:
        save("workers", broker.bootstrap, tmp_path)
        broker.create_topic("orders.dead")
        broker.produce("orders", [b'{"amount": 5}', b'{"amount": -1}', b'{"amount": 7}'])
        with running(tmp_path, "worker.py") as worker:
            wait_for(broker, "orders.dead", 1, worker, tmp_path)
            with broker.admin() as admin:
                deadline = time.monotonic() + PATIENCE_S
                while any(lag.lag != 0 for lag in admin.group_lag("worker").values()):
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(PATIENCE_S) == 0, (tmp_path / "output.txt").read_text()
        assert values(broker, "orders.dead") == [b'{"amount": -1}']
        with broker.admin() as admin:
            assert not admin.describe_group("worker").members, "it has left its group"
        rows = sqlite3.connect(tmp_path / "worker.db").execute("SELECT amount FROM bills ORDER BY amount").fetchall()
        assert rows == [(5,), (7,)]
        assert run(tmp_path, "replay.py").count("\n") == 3


@pytest.mark.slow
def test_bulk_producer_sends_every_row(tmp_path: Path) -> None:
    with TestBroker() as broker:
        save("workers", broker.bootstrap, tmp_path)
        run(tmp_path, "bulk.py")
        assert len(values(broker, "rows")) == 50_000


@pytest.mark.slow
def test_fastapi_application_publishes_in_its_lifespan(tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="the extra test has it")
    pytest.importorskip("httpx", reason="the extra test has it")
    with TestBroker() as broker:
        save("frameworks", broker.bootstrap, tmp_path)
        (tmp_path / "ask.py").write_text(
            "from fastapi.testclient import TestClient\n"
            "from api import app\n"
            "with TestClient(app) as client:\n"
            "    print(client.post('/orders', json={'item': 'book'}).json())\n"
        )
        assert run(tmp_path, "ask.py") == "{'partition': 0, 'offset': 0}\n"
        broker.assert_produced("orders", [{"item": "book"}])


@pytest.mark.slow
def test_django_view_publishes_after_its_transaction(tmp_path: Path) -> None:
    pytest.importorskip("django", reason="the extra test has it")
    with TestBroker() as broker:
        save("frameworks", broker.bootstrap, tmp_path)
        (tmp_path / "ask.py").write_text(
            "import django\n"
            "from django.conf import settings\n"
            "engine = {'ENGINE': 'django.db.backends.sqlite3', 'NAME': 'shop.db'}\n"
            "keys = {'ALLOWED_HOSTS': ['*'], 'SECRET_KEY': 'x'}\n"
            "settings.configure(ROOT_URLCONF='ask', DATABASES={'default': engine}, **keys)\n"
            "django.setup()\n"
            "from django.test import Client\n"
            "from django.urls import path\n"
            "from views import place_order\n"
            "urlpatterns = [path('orders', place_order)]\n"
            "if __name__ == '__main__':\n"
            "    import sys\n"
            "    sys.modules['ask'] = sys.modules['__main__']\n"
            "    print(Client().post('/orders', {'customer': 'ann'}).status_code)\n"
        )
        assert run(tmp_path, "ask.py") == "200\n"
        assert len(values(broker, "placed")) == 1


@pytest.mark.slow
def test_gunicorn_workers_publish_after_their_fork(tmp_path: Path) -> None:
    pytest.importorskip("gunicorn", reason="the extra test has it")
    with TestBroker() as broker:
        save("frameworks", broker.bootstrap, tmp_path)
        words = ("-m", "gunicorn", "--preload", "--workers", "2", "--bind", "127.0.0.1:0", "website:application")
        with running(tmp_path, *words) as server:
            deadline = time.monotonic() + PATIENCE_S
            while not (found := re.search(r"(http://127.0.0.1:[1-9]\d*)", (tmp_path / "output.txt").read_text())):
                assert server.poll() is None, (tmp_path / "output.txt").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.1)
            for _ in range(3):
                assert urllib.request.urlopen(found[1], timeout=PATIENCE_S).read() == b"welcome\n"
            server.send_signal(signal.SIGTERM)
            assert server.wait(PATIENCE_S) == 0
        assert len(values(broker, "visits")) == 3


@pytest.mark.slow
def test_celery_tasks_publish_from_the_forked_pool(tmp_path: Path) -> None:
    pytest.importorskip("celery", reason="the extra test has it")
    with TestBroker() as broker:
        save("frameworks", broker.bootstrap, tmp_path)
        (tmp_path / "queue").mkdir()
        broker.create_topic("bills")
        run(tmp_path, "-c", "from tasks import bill; [bill.delay(number) for number in range(3)]")
        words = ("-m", "celery", "-A", "tasks", "worker", "--concurrency", "2", "--without-gossip", "--without-mingle")
        with running(tmp_path, *words) as worker:
            wait_for(broker, "bills", 3, worker, tmp_path)
            worker.send_signal(signal.SIGTERM)
            worker.wait(PATIENCE_S)
        assert len(values(broker, "bills")) == 3


@pytest.mark.slow
def test_recipes_for_pytest_run_under_asyncio_and_xdist(tmp_path: Path) -> None:
    pytest.importorskip("pytest_asyncio", reason="install it to run this recipe")
    save("testing", ADDRESS, tmp_path)
    said = run(
        tmp_path,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "-p",
        "no:randomly",
        "--rootdir",
        str(tmp_path),
        "-c",
        "/dev/null",
        str(tmp_path),
    )
    assert "5 passed" in said
