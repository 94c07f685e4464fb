"""`barnabas cluster features`: show and change the finalized levels of features, after Kafka's kafka-features.sh."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ....ports.broker_api.features import UpgradeType
from ....ports.errors import ConfigError
from ..options import AsJson, Bootstrap, open_admin, print_json, print_table

if TYPE_CHECKING:
    from ...clients.admin.admin import Admin

features = typer.Typer(
    help="Show and change the finalized levels of features, which say what all brokers may do.", no_args_is_help=True
)

Levels = Annotated[
    list[str] | None,
    typer.Option("--feature", "-f", metavar="NAME=LEVEL", help="Feature and its new level; may be repeated."),
]
Names = Annotated[list[str], typer.Option("--feature", "-f", metavar="NAME", help="Feature; may be repeated.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only check that the change is possible.")]
Unsafe = Annotated[bool, typer.Option("--unsafe", help="Also where metadata would be lost.")]


@features.command("describe")
def describe(
    bootstrap: Bootstrap,
    broker: Annotated[
        int | None, typer.Option("--broker", metavar="ID", help="Levels that this broker supports; default: any.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the features: the levels that a broker supports, and the finalized level of the cluster."""
    with open_admin(bootstrap) as admin:
        found = admin.describe_features(broker)
    rows = []
    for name in sorted({*found.supported, *found.finalized}):
        levels = found.supported.get(name)
        least, most = (0, 0) if levels is None else (levels.min_version, levels.max_version)
        rows.append((name, least, most, found.level(name)))
    if as_json:
        columns = ("feature", "supported_min_version", "supported_max_version", "finalized_version_level")
        described = [dict(zip(columns, row, strict=True)) for row in rows]
        print_json({"epoch": found.finalized_epoch, "features": described})
        return
    print_table(
        ("feature", "supported min version", "supported max version", "finalized version level", "epoch"),
        [(*row, found.finalized_epoch) for row in rows],
    )


@features.command("upgrade")
def upgrade(
    bootstrap: Bootstrap,
    levels: Levels = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every feature, to the newest level that all brokers support.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Raise levels of features: all of them, or none.

    After the last broker of a cluster has its new version, `--all` lets the brokers do what that version can. Brokers
    of earlier versions cannot join from then on.
    """
    if everything == bool(levels):
        raise ConfigError("name features with --feature NAME=LEVEL, or take --all")
    wanted = _read(levels or ())
    with open_admin(bootstrap) as admin:
        wanted = _newest(admin) if everything else wanted
        if not wanted:
            typer.echo("every feature is at its newest level")
            return
        admin.update_features(wanted, validate_only=dry_run)
    _say("upgraded", wanted, dry_run=dry_run)


def _newest(admin: Admin) -> dict[str, int]:
    """Return the newest levels that all brokers support, of features that are below them."""
    described = [admin.describe_features(node.node_id) for node in admin.describe_cluster().brokers]
    names = {name for each in described for name in each.supported}
    wanted = {}
    for name in sorted(names):
        most = min(each.supported[name].max_version if name in each.supported else 0 for each in described)
        if most > max(each.level(name) for each in described):
            wanted[name] = most
    return wanted


@features.command("downgrade")
def downgrade(bootstrap: Bootstrap, levels: Levels = None, unsafe: Unsafe = False, dry_run: DryRun = False) -> None:
    """Lower levels of features: all of them, or none."""
    if not levels:
        raise ConfigError("name features with --feature NAME=LEVEL")
    _lower("downgraded", bootstrap, _read(levels), unsafe=unsafe, dry_run=dry_run)


@features.command("disable")
def disable(bootstrap: Bootstrap, names: Names, unsafe: Unsafe = False, dry_run: DryRun = False) -> None:
    """Take features back to the level 0, as if they were never there."""
    _lower("disabled", bootstrap, dict.fromkeys(names, 0), unsafe=unsafe, dry_run=dry_run)


def _lower(verb: str, bootstrap: str, wanted: Mapping[str, int], *, unsafe: bool, dry_run: bool) -> None:
    kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
    with open_admin(bootstrap) as admin:
        admin.update_features(wanted, kind, validate_only=dry_run)
    _say(verb, wanted, dry_run=dry_run)


def _read(levels: Iterable[str]) -> dict[str, int]:
    wanted: dict[str, int] = {}
    for each in levels:
        name, _, level = each.partition("=")
        if not name or not level.isdecimal():
            raise ConfigError(f"--feature {each}: it must be NAME=LEVEL with a level of 0 or more")
        if name in wanted:
            raise ConfigError(f"--feature {each}: {name} is named twice")
        wanted[name] = int(level)
    return wanted


def _say(verb: str, wanted: Mapping[str, int], *, dry_run: bool) -> None:
    did = f"can be {verb}" if dry_run else f"was {verb}"
    lines: Sequence[str] = [
        f"{name} {did}." if verb == "disabled" else f"{name} {did} to {level}." for name, level in wanted.items()
    ]
    typer.echo("\n".join(lines))
