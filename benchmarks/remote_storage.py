"""Measure what the clients of S3 cost, against moto's server: `python benchmarks/remote_storage.py [LIBRARY]...`.

Each library runs in a process of its own, so that its import is measured, too; CPU time is that of the client.
"""

import logging
import os
import resource
import subprocess
import sys
import urllib.request
from collections.abc import Callable

LIBRARIES = ("obstore", "boto3", "s3fs")
KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_DEFAULT_REGION": "us-east-1"}
MB = 1 << 20
Put = Callable[[str, bytes], object]
Get = Callable[[str, int, int], bytes]


def of_obstore(url: str) -> tuple[Put, Get]:
    import obstore
    from obstore.store import S3Store

    store = S3Store("bucket", endpoint=url, region="us-east-1", client_options={"allow_http": True})
    return (
        lambda key, content: obstore.put(store, key, content),
        lambda key, start, size: bytes(obstore.get_range(store, key, start=start, length=size)),
    )


def of_boto3(url: str) -> tuple[Put, Get]:
    import boto3

    client = boto3.client("s3", endpoint_url=url)

    def get(key: str, start: int, size: int) -> bytes:
        found = client.get_object(Bucket="bucket", Key=key, Range=f"bytes={start}-{start + size - 1}")
        content: bytes = found["Body"].read()
        return content

    return lambda key, content: client.put_object(Bucket="bucket", Key=key, Body=content), get


def of_s3fs(url: str) -> tuple[Put, Get]:
    import s3fs

    system = s3fs.S3FileSystem(key="x", secret="y", client_kwargs={"endpoint_url": url})
    return (
        lambda key, content: system.pipe_file(f"bucket/{key}", content),
        lambda key, start, size: system.cat_file(f"bucket/{key}", start=start, end=start + size),
    )


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(name: str, url: str) -> None:
    before = cpu_s()
    put, get = {"obstore": of_obstore, "boto3": of_boto3, "s3fs": of_s3fs}[name](url)
    put("first", b"x")
    imported = cpu_s()
    large = os.urandom(16 * MB)
    for number in range(6):
        put(f"large{number}", large)
    stored = cpu_s()
    for number in range(96):
        assert len(get(f"large{number % 6}", number % 16 * MB, MB)) == MB
    read = cpu_s()
    for number in range(300):
        put(f"small{number}", b"y" * 500)
        get(f"small{number}", 0, 500)
    small = cpu_s()
    print(
        f"{name:8} import and first {imported - before:.2f} s, put 6 x 16 MB {stored - imported:.2f} s, "
        f"96 ranges of 1 MB {read - stored:.2f} s, 300 small put and get {small - read:.2f} s"
    )


def main() -> None:
    from moto.server import ThreadedMotoServer

    os.environ.update(KEYS)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT")).close()
        for name in sys.argv[1:] or LIBRARIES:
            subprocess.run([sys.executable, __file__, "--one", name, url], check=True)
    finally:
        server.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        measure(sys.argv[2], sys.argv[3])
    else:
        main()
