"""Short rehearsals for tests: real processes, a few seconds of outage."""

import contextlib
from pathlib import Path

from twinbus.rehearsal.bill import Bill, bill_of
from twinbus.rehearsal.drain import Drain
from twinbus.rehearsal.rehearsal import DRAINING, RECOVERY_WAIT_S, WAITING, Rehearsal
from twinbus.rehearsal.rehearsal_settings import Engine, RehearsalSettings
from twinbus.rehearsal.report import RehearsalReport
from twinbus.rehearsal.script import Script, default_script
from twinbus.rehearsal.sends import SendRecord
from twinbus.rehearsal.stage import Stage
from twinbus.rehearsal.throwaway_stage import throw_away_stage

SHORT_S = 5.0


def rehearse(
    seed: int,
    drain: Drain,
    engine: Engine = Engine.PROCESS,
    script: Script | None = None,
    *,
    has_bill: bool = True,
) -> RehearsalReport:
    settings = RehearsalSettings(seed=seed, engine=engine, failover_interval_s=0.2, ping_interval_s=1.0)
    return rehearse_with(settings, drain, script or default_script(SHORT_S), has_bill=has_bill)


def rehearse_with(
    settings: RehearsalSettings, drain: Drain, script: Script, *, has_bill: bool = False
) -> RehearsalReport:
    return rehearsed(settings, drain, script, has_bill=has_bill)[0]


def rehearsed(
    settings: RehearsalSettings, drain: Drain, script: Script, *, has_bill: bool = False
) -> tuple[RehearsalReport, list[SendRecord]]:
    """With what became of every single send."""
    with throw_away_stage() as stage, contextlib.closing(drain):

        def bill(stage: Stage) -> Bill | None:
            return bill_of(stage, None) if has_bill else None

        rehearsal = Rehearsal(stage, script, settings, drain, bill, lambda _: None)
        return rehearsal.run(), rehearsal.sends.records


def check_survived(report: RehearsalReport) -> None:
    """What has to hold after any rehearsal with an outage, whatever its seed."""
    assert report.is_balanced, report.balance
    steps = {moment.text: moment.at_s for moment in report.moments}
    assert steps[DRAINING] - steps[WAITING] < RECOVERY_WAIT_S  # nobody waited for what only the drain can end
    assert report.paired.percent > report.unpaired.percent
    outage = report.faults[0]
    assert all(each.outage.failed_over_after_s is not None for each in outage.entities)
    assert all(each.outage.recovered_after_s is not None for each in outage.entities)
    assert report.pings_answered >= len(outage.entities)
    assert report.drained.moved >= sum(report.backlog_sends.values()) > 0
    assert sum(line.waiting + line.dead_lettered for line in report.balance.lines) == 0
    assert report.bill is not None
    units = {(line.path, line.cause): line.units for line in report.bill.lines}
    assert units["backlog", "send"] >= sum(report.backlog_sends.values())
    assert units["primary", "ping"] >= report.pings_answered


def processes_of(folder: Path) -> list[str]:
    """Command lines of all processes that were told to keep their data there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(folder) in command:
                found.append(command)
    return found
