"""`barnabas top`: the live state of a cluster."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from ..options import Bootstrap, open_admin
from ..reaching import check_reachable
from ..tables import Section, show
from .look import Looker
from .state import TopState, looked
from .view import view_of


def register(app: typer.Typer) -> None:
    app.command("top")(top)


def top(
    bootstrap: Bootstrap,
    interval: Annotated[float, typer.Option(metavar="SECONDS", min=0.2, help="Refresh interval.")] = 2.0,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
) -> None:
    """Show brokers, topics with their rates, groups with their lag, and new messages; without a terminal, print the
    state once.

    Keys: b, t, g: brokers, topics, groups; arrows or j and k move; Enter opens a topic (its newest messages, Tab: its
    partitions), a group (its lag in each partition, Tab: its members) or a broker (its connections); n, r, l, s sort by
    name, rate, lag and size; / filters rows by a text (messages: key=TEXT searches keys only); p pauses; Esc goes back;
    ? shows all keys; q quits.
    """
    if not _at_a_terminal():
        _look_once(bootstrap, internal=internal)
        return
    check_reachable(bootstrap)
    from .live import run

    run(bootstrap, interval, internal=internal)


def _at_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") not in {"", "dumb"}


def _look_once(bootstrap: str, *, internal: bool) -> None:
    with open_admin(bootstrap) as admin:
        state = looked(TopState(), Looker(admin, internal=internal).take_snapshot(("topics", "groups")))
    sections: list[Section] = []
    for tab in ("brokers", "topics", "groups"):
        view = view_of(TopState(tab=tab, look=state.look, topics=state.topics, groups=state.groups))
        if not sections:
            sections += [Section(view.head), *([Section(view.notice, alarm=True)] if view.notice else [])]
        title = tab if view.rows else f"no {tab}"
        sections.append(Section(title, view.columns, [row.cells for row in view.rows]))
    show(sections)
