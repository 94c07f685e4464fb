"""Apache Kafka's Java client of two generations, in a process of Java."""

import os
import shutil
from pathlib import Path

from .fetched import BUILD, fetched, need, run
from .remote import DriverProcess, RemoteClient

_HERE = Path(__file__).parent / "java"
QUICK = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]


def _fetch_jars(folder: Path) -> None:
    shutil.copy(_HERE / "pom.xml", folder)
    connecting = ["-Daether.connector.connectTimeout=10000", "-Dmaven.wagon.http.retryHandler.count=0"]
    run(["mvn", "-B", "-q", *connecting, "dependency:copy"], folder, "the Java client could not be fetched")


def _compile(folder: Path, jars: Path) -> None:
    sources = [_HERE / "Driver.java", _HERE / "Tool.java"]
    classpath = f"{jars}/3/*:{jars}/common/*"
    run(["javac", "-nowarn", "-cp", classpath, "-d", folder, *sources], folder, "the driver could not be compiled")


def java_classpath(generation: int) -> str:
    """Of the driver and the libraries of that generation, 3 or 4. Raises `Unavailable`."""
    need("java", "javac", "mvn")
    jars = fetched("java", [_HERE / "pom.xml"], _fetch_jars)
    sources = [_HERE / "pom.xml", _HERE / "Driver.java", _HERE / "Tool.java"]
    classes = fetched("java-classes", sources, lambda folder: _compile(folder, jars))
    return f"{classes}:{jars}/{generation}/*:{jars}/common/*"


def _client(bootstrap: str, generation: int) -> RemoteClient:
    command = ["java", *QUICK, "-cp", java_classpath(generation), "Driver"]
    log = BUILD / "java" / f"{generation}-{os.getpid()}.log"
    return RemoteClient(DriverProcess(command, log, os.environ), bootstrap)


def java_3(bootstrap: str) -> RemoteClient:
    """Raises `Unavailable`."""
    return _client(bootstrap, 3)


def java_4(bootstrap: str) -> RemoteClient:
    """Raises `Unavailable`."""
    return _client(bootstrap, 4)
