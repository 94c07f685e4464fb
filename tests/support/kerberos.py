"""A Kerberos realm of a test: MIT's KDC on a free loopback port, with keytabs of its principals."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from support.ports import free_port
from support.server_process import ServerProcess

REALM = "EX.COM"
_SYSTEM = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))


def _tool(name: str) -> str:
    found = shutil.which(name, path=_SYSTEM)
    if found is None:
        pytest.skip(f"MIT Kerberos is not installed: no {name} (apt-get install krb5-kdc krb5-admin-server)")
    return found


class Kdc(ServerProcess):
    """The KDC. `environment` has the variables by which libraries and tools find it."""

    name = "the KDC"

    def __init__(self, folder: Path) -> None:
        pytest.importorskip("gssapi", reason="gssapi is not installed (pip install 'barnabas[gssapi]')")
        super().__init__(folder, [_tool("krb5kdc"), "-n"])
        self.port = free_port()
        self.folder = folder
        (folder / "krb5.conf").write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\ndns_lookup_realm = false\nrdns = false\n"
            "dns_canonicalize_hostname = false\nudp_preference_limit = 1\n"
            f"[realms]\n{REALM} = {{\n kdc = 127.0.0.1:{self.port}\n}}\n[domain_realm]\nlocalhost = {REALM}\n"
        )
        (folder / "kdc.conf").write_text(
            f"[kdcdefaults]\nkdc_ports = {self.port}\nkdc_tcp_ports = {self.port}\nkdc_listen = 127.0.0.1:{self.port}\n"
            f"kdc_tcp_listen = 127.0.0.1:{self.port}\n[realms]\n{REALM} = {{\n database_name = {folder}/principal\n"
            f" key_stash_file = {folder}/stash\n acl_file = {folder}/acl\n}}\n[logging]\nkdc = FILE:{folder}/kdc.log\n"
        )
        self.environment = {
            "KRB5_CONFIG": str(folder / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{folder}/cache",
        }
        os.environ.update(self.environment)  # C libraries read it; the module's fixture takes it back
        subprocess.run(
            [_tool("kdb5_util"), "create", "-s", "-r", REALM, "-P", "master"], check=True, capture_output=True
        )

    def add(self, principal: str) -> Path:
        """Add a principal with a random key; returns its keytab."""
        keytab = self.folder / f"{principal.replace('/', '-')}.keytab"
        for query in (f"addprinc -randkey {principal}", f"ktadd -k {keytab} {principal}"):
            command = [_tool("kadmin.local"), "-r", REALM, "-q", query]
            subprocess.run(command, check=True, capture_output=True)
        return keytab

    def log_in(self, principal: str, keytab: Path) -> None:
        """Put a ticket of the principal into the cache."""
        subprocess.run([_tool("kinit"), "-k", "-t", str(keytab), principal], check=True, capture_output=True)

    def serves(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 2):
                return True
        except OSError:
            return False
