"""One run of the bill: logs, a folder and a plan in; counts, lines and the summary of a month out.

<out>/counts/       by hour, see `counts`                       <out>/hourly|daily/               see `lines`
<out>/monthly|causes|csv/   see `line_sums`
<out>/state/        what was billed, for each log               <out>/report-YYYY-MM.html|json    see `cost.report`

Everything runs on the driver but the Spark jobs. The order makes a crash harmless: days are noted as not priced, then
hours are counted, then their files are noted as billed, then days are priced. Any prefix of that can be repeated.
"""

import fcntl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.cost.month_to_date import HourCount, hour_prices
from twinbus.cost.prices import Plan
from twinbus.errors import ArgumentError, MessagingError
from twinbus.meter.log_check import Unusable, Usable, check, check_whole, list_log
from twinbus.meter.log_format import hour_of
from twinbus.pipeline.bill.counts import count_hours, log_name, read_counts, steps
from twinbus.pipeline.bill.hour_sums import hour_counts
from twinbus.pipeline.bill.hours import Hour, Work, plan_work
from twinbus.pipeline.bill.line_sums import write_sums
from twinbus.pipeline.bill.lines import priced_hours, write_lines
from twinbus.pipeline.bill.manifest import billed_elsewhere, read_manifest, write_manifest
from twinbus.pipeline.bill.priced_days import PricedDays

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str], None]
"""Told what begins now."""


class BillInUse(MessagingError):
    """Another run works on the same folder."""


@dataclass(slots=True)
class Intake:
    """What a run found in the logs. Files are named by their whole path."""

    hours: int = 0
    files: int = 0
    unusable: dict[str, str] = field(default_factory=dict)
    held_back: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where a bill stands after a run."""

    intake: Intake
    hours: Sequence[HourCount]


def update_ledger(spark: "SparkSession", logs: Sequence[Path], out: Path, plan: Plan, progress: Progress) -> Ledger:
    """Bring counts and lines up to what the logs hold now. Running it again changes nothing."""
    for log in logs:
        if not log.is_dir():
            raise ArgumentError(
                f"There is no operations log at {log}. Give the folder that contains the date=… folders."
            )
    with _alone(out):
        priced = PricedDays(out / "state" / "priced-days")
        intake = Intake()
        for log in logs:
            _LogRun(spark, log, out, priced, intake, progress).count()
        return Ledger(intake, _price_days(spark, out, priced, plan, progress))


class _LogRun:
    """One log in one run: its hours are counted, and what was billed and what is unusable is noted."""

    def __init__(
        self, spark: "SparkSession", log: Path, out: Path, priced: PricedDays, intake: Intake, progress: Progress
    ) -> None:
        self._spark = spark
        self._log = log
        self._counts = out / "counts"
        self._notes = out / "state" / f"{log_name(log)}.json"
        self._priced = priced
        self._intake = intake
        self._progress = progress
        self._manifest = read_manifest(self._notes)
        self._broken: dict[str, Unusable] = {}

    def count(self) -> None:
        self._progress(f"looking at {self._log}")
        self._refuse_a_moved_log()
        work = self._plan()
        while (failed := self._count_steps(work)) is not None:
            # A page inside the file is damaged: reading it fails, although the file's index is good.
            self._progress("reading files one by one to find the damaged one")
            found = {file.name: check_whole(self._log, file.name) for hour in failed.hours for file in hour.files}
            unusable = {name: facts for name, facts in found.items() if isinstance(facts, Unusable)}
            if not unusable:
                raise failed.cause
            self._broken |= unusable
            work = self._plan()
        self._manifest.unusable = work.unusable
        write_manifest(self._notes, self._manifest, self._log)
        self._intake.unusable |= {str(self._log / name): reason for name, reason in work.unusable.items()}
        self._intake.held_back |= {str(self._log / name): reason for name, reason in work.held_back.items()}

    def _refuse_a_moved_log(self) -> None:
        if self._manifest.billed:
            return
        other = billed_elsewhere(self._notes, list_log(self._log))
        if other is not None:
            raise ArgumentError(
                f"Files of {self._log} were already billed from {other}. Choose another folder for the bill with --out."
            )

    def _plan(self) -> Work:
        return plan_work(list_log(self._log), self._manifest, self._look)

    def _look(self, name: str) -> Usable | Unusable:
        """What was unusable before is read whole, for its index may be all that is well."""
        return self._broken.get(name) or (check_whole if name in self._manifest.unusable else check)(self._log, name)

    def _count_steps(self, work: Work) -> "_FailedStep | None":
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        for step in steps(work.hours):
            files = [file for hour in step for file in hour.files]
            self._progress(f"counting {len(step):,} hours in {len(files):,} files of {self._log}")
            self._priced.forget(f"{hour_of(hour.name):%Y-%m-%d}" for hour in step)
            try:
                count_hours(self._spark, self._log, step, self._counts)
            except (PySparkException, Py4JError) as fault:
                return _FailedStep(step, fault)
            self._manifest.bill(files)
            write_manifest(self._notes, self._manifest, self._log)
            self._intake.hours += len(step)
            self._intake.files += len(files)
        return None


@dataclass(frozen=True, slots=True)
class _FailedStep:
    hours: Sequence[Hour]
    cause: Exception


def _price_days(
    spark: "SparkSession", out: Path, priced: PricedDays, plan: Plan, progress: Progress
) -> list[HourCount]:
    if not (out / "counts").is_dir():
        return []
    hours = hour_counts(out / "counts")
    days = priced.changed(hour_prices(hours, plan))
    if days:
        progress(f"pricing {len(days):,} days")
        prices = [price for of_day in days.values() for price in of_day]
        hourly = priced_hours(read_counts(spark, out / "counts"), prices, spark).persist()
        write_lines(hourly, out)
        hourly.unpersist()
        write_sums(out, days)
    priced.remember(days)
    return hours


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    out.mkdir(parents=True, exist_ok=True)
    with (out / "_lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BillInUse(
                f"Another run is writing to {out}. Wait for it, or choose another folder with --out."
            ) from None
        yield
