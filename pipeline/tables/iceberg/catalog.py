"""Registration of an Iceberg table: in a SQLite file inside its folder, or in a catalog that others share."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attrs import asdict, frozen
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, RESTError

from ....ports.errors import ConfigError
from ..files import sync_down_to, write_durably
from ..state import TableError
from .durable import DurableFileIO

CATALOG = "barnabas"
"""The catalog's name, which a SQL catalog keeps with each table: other readers open the table by it."""
NAMESPACE = "barnabas"
_REST = re.compile(r"https?://")
_SQL = re.compile(r"(sqlite|postgresql)(\+\w+)?:")
_MARKER = Path("_barnabas", "iceberg.json")


@frozen(kw_only=True)
class CatalogEntry:
    """The catalog of a table, and its name there; `catalog` "" = the SQLite file of the folder."""

    catalog: str
    table: str


def find_entry(folder: Path, catalog: str = "", table: str = "") -> CatalogEntry:
    """Return the entry by which a catalog has the folder's table, or will: `table` is NAMESPACE.NAME; "" =
    barnabas.FOLDER, by the folder's name. Raises `ConfigError` when it is registered elsewhere.
    """
    if table and not re.fullmatch(r"[^.]+(\.[^.]+)+", table):
        raise ConfigError(f"table {table!r} is not NAMESPACE.NAME")
    if catalog and not _REST.match(catalog) and not _SQL.match(catalog):
        raise ConfigError(f"catalog {catalog!r} is none of http(s)://... (REST), sqlite:///FILE, postgresql://...")
    stored = stored_entry(folder)
    if stored is None:
        own = re.sub(r"\W+", "_", folder.absolute().name) or "table"
        return CatalogEntry(catalog=catalog, table=table or f"{NAMESPACE}.{own}")
    if (catalog or stored.catalog, table or stored.table) != (stored.catalog, stored.table):
        where = stored.catalog or "the catalog in its folder"
        raise ConfigError(f"{folder} is table {stored.table} of {where}; a table has one entry in one catalog")
    return stored


def stored_entry(folder: Path) -> CatalogEntry | None:
    """Return the catalog entry of the folder's table; None: it is no Iceberg table of ours. Raises `TableError`."""
    path = folder / _MARKER
    if not path.exists():
        return None
    try:
        raw = json.loads(path.read_text())
        return CatalogEntry(catalog=str(raw["catalog"]), table=str(raw["table"]))
    except (ValueError, KeyError, TypeError) as error:
        raise TableError(f"{path} is damaged: {error!r}") from error


def store_entry(folder: Path, entry: CatalogEntry) -> None:
    """Store the entry durably: without it the next load would find no table, and begin from the first offset."""
    path = folder / _MARKER
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, json.dumps(asdict(entry), indent=1))
    sync_down_to(path.parent, folder)


@contextmanager
def opened(folder: Path, entry: CatalogEntry) -> Iterator[Catalog]:
    """Raises `TableError` when the catalog cannot be reached or does not do what it is asked."""
    from sqlalchemy.exc import SQLAlchemyError

    with _plain_errors(entry, SQLAlchemyError):
        catalog = load_catalog(CATALOG, **_properties(folder, entry))
    try:
        with _plain_errors(entry, SQLAlchemyError):
            yield catalog
    finally:
        catalog.close()


def _properties(folder: Path, entry: CatalogEntry) -> Mapping[str, str]:
    """Return the catalog's properties. pyiceberg adds those of its configuration (a token, say): ~/.pyiceberg.yaml, or
    PYICEBERG_CATALOG__BARNABAS__TOKEN.
    """
    durable = {"py-io-impl": f"{DurableFileIO.__module__}.{DurableFileIO.__name__}"}
    uri = entry.catalog
    if not uri:
        file = folder.absolute() / "_barnabas" / "catalog.db"
        file.parent.mkdir(parents=True, exist_ok=True)
        return {"type": "sql", "uri": f"sqlite:///{file}", "warehouse": str(folder.absolute()), **durable}
    if _REST.match(uri):
        return {"type": "rest", "uri": uri, **durable}
    return {"type": "sql", "uri": uri, "warehouse": str(folder.absolute()), **durable}


@contextmanager
def _plain_errors(entry: CatalogEntry, sql_error: type[Exception]) -> Iterator[None]:
    import requests

    try:
        yield
    except CommitFailedException as error:
        text = f"table {entry.table}: another program has changed it meanwhile; nothing is committed, try again"
        raise TableError(f"{text} ({error})") from error
    except CommitStateUnknownException as error:
        text = f"table {entry.table}: {entry.catalog} does not say whether the change took effect; try again"
        raise TableError(f"{text} ({error})") from error
    except (RESTError, sql_error, requests.RequestException) as error:
        where = entry.catalog or "its own catalog"
        raise TableError(f"table {entry.table}: {where} does not answer as it should: {error}") from error
