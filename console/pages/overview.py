"""The overview: brokers, controller, faults of partitions, rates; the page of one broker; the changes of users."""

from starlette.exceptions import HTTPException
from starlette.responses import Response

from ... import BarnabasError
from ...ports.broker_api.configs import ConfigSource, ResourceKind
from ..application import PageCall, PageRoute


def show(call: PageCall) -> Response:
    """Show the changes since the console started; where users sign in, each sees their own."""
    own = call.connection.user if call.settings.needs_sign_in else None
    changes = [each for each in call.console.changes if own is None or each.user == own]
    return call.page("changes.html.j2", changes=changes)


def overview(call: PageCall) -> Response:
    """Show the state of the cluster."""
    connection = call.connection
    snapshot = connection.snapshot()
    busiest = sorted((row for row in snapshot.topics.values() if row.rate), key=lambda row: -(row.rate or 0))[:8]
    troubled = [row for row in snapshot.topics.values() if row.offline or row.under_replicated]
    rates = list(connection.rates)
    chart = [[ms / 1000 for ms, _ in rates], [round(rate, 2) for _, rate in rates]]
    return call.page(
        "overview.html.j2",
        snapshot=snapshot,
        trouble=connection.snapshots.trouble,
        busiest=busiest,
        troubled=troubled[:20],
        troubled_count=len(troubled),
        chart=chart,
    )


def broker(call: PageCall) -> Response:
    """Show one broker with its settings."""
    snapshot = call.connection.snapshot()
    found = next((row for row in snapshot.brokers if str(row.node.node_id) == call.path("id")), None)
    if found is None:
        raise HTTPException(404, f"There is no broker {call.path('id')} in the cluster.")
    refused = ""
    try:
        entries = call.connection.admin.describe_configs(ResourceKind.BROKER, found.node.node_id, documentation=True)
    except BarnabasError as error:
        entries, refused = [], str(error)
    wanted = call.query("q").lower()
    own = [entry for entry in entries if entry.source is not ConfigSource.DEFAULT]
    others = [entry for entry in entries if entry.source is ConfigSource.DEFAULT]
    shown = [entry for entry in (*own, *others) if wanted in entry.name]
    return call.page(
        "broker.html.j2",
        snapshot=snapshot,
        trouble=call.connection.snapshots.trouble,
        row=found,
        entries=shown,
        refused=refused,
    )


PAGES = (PageRoute("/", overview), PageRoute("/brokers/{id}", broker), PageRoute("/changes", show))
