"""A rehearsal while it runs: a view that redraws itself on a terminal, a line for each moment elsewhere."""

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from twinbus.rehearsal.chronicle import Moment, MomentKind
from twinbus.rehearsal.report import Status
from twinbus.rehearsal.report_text import percent
from twinbus.rehearsal.sends import Availability

REDRAWS_A_SECOND = 4
MOMENTS_SHOWN = 10

STYLES = {
    MomentKind.STEP: "dim",
    MomentKind.FAULT: "bold red",
    MomentKind.MENDED: "bold green",
    MomentKind.FAILING: "yellow",
    MomentKind.FAILED_OVER: "magenta",
    MomentKind.RECOVERED: "green",
    MomentKind.CAUGHT_UP: "green",
    MomentKind.QUEUE_OUT: "red",
}
CONDITION_STYLES = {
    "healthy": "green",
    "failing": "yellow",
    "failed-over": "magenta",
    "recovering": "cyan",
    "catching-up": "cyan",
}


class LiveView:
    """The rehearsal calls `hear`; whoever runs it uses `shown`."""

    def __init__(self, console: Console, *, is_silent: bool = False) -> None:
        self._console = console
        self._is_silent = is_silent

    def hear(self, moment: Moment) -> None:
        if not self._is_silent and not self._console.is_terminal:
            self._console.print(moment_line(moment))

    @contextlib.contextmanager
    def shown(self, status: Callable[[], Status]) -> Iterator[None]:
        if self._is_silent or not self._console.is_terminal:
            yield
            return
        with Live(
            get_renderable=lambda: picture(status()),
            console=self._console,
            refresh_per_second=REDRAWS_A_SECOND,
            transient=True,
        ):
            yield


def moment_line(moment: Moment) -> Text:
    line = Text(f"{moment.kind:<12} {moment.text}", STYLES[moment.kind])
    return Text.assemble((f"{moment.at_s:7.1f} s  ", "dim"), line)


def picture(status: Status) -> RenderableType:
    elapsed = min(max(0.0, status.elapsed_s), status.duration_s)
    head = Table.grid(padding=(0, 2))
    head.add_row(
        Text(status.step, "bold"),
        ProgressBar(total=status.duration_s, completed=elapsed, width=40),
        f"{elapsed:.0f} of {status.duration_s:.0f} s",
    )
    moments = Group(*(moment_line(moment) for moment in status.moments[-MOMENTS_SHOWN:]))
    return Panel(
        Group(head, "", _sends(status), "", _entities(status), "", _on_the_way(status), "", moments),
        title="twinbus rehearse",
        title_align="left",
        border_style="dim",
    )


def _sends(status: Status) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("sender", "due", "accepted", "failed", "available"):
        table.add_column(name, justify="left" if name == "sender" else "right", min_width=9)
    for name, share in (("paired", status.paired), ("unpaired", status.unpaired)):
        table.add_row(name, str(share.planned), str(share.accepted), _failed(share), percent(share))
    return table


def _failed(share: Availability) -> Text:
    failed = share.planned - share.accepted
    return Text(str(failed), "red" if failed else "dim")


def _entities(status: Status) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("entity", min_width=14)
    table.add_column("is", min_width=12)
    table.add_column("sent through the backlog", justify="right")
    for each in status.entities:
        style = CONDITION_STYLES.get(each.condition, "")
        table.add_row(escape(each.path), Text(each.condition, style), str(each.backlog_sends))
    return table


def _on_the_way(status: Status) -> str:
    return f"received {status.delivered}, on the way {status.outstanding}, of which in the backlog {status.backlog}"
