"""Which hours of a log must be counted again: the files that exist and those that were billed in, hours with their files out.

An hour is counted from all of its files whenever one of them is new or different. Two things are never guessed:

* A file that cannot be read is skipped and reported; every run tries it again, and counts its hour again when it, or
  what replaces it, can be read.
* An hour of which a billed file is gone or broken keeps the counts it has: counting it from what is left would take
  operations out of a bill. What else comes for that hour is named, and not billed.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from twinbus.meter.log_check import LogFile, Unusable, Usable, repeating
from twinbus.pipeline.bill.manifest import Manifest

Check = Callable[[str], Usable | Unusable]
"""By name of a file."""


@dataclass(frozen=True, slots=True)
class Hour:
    """One hour to count: files that share no operation with others, and those whose ids have to be compared."""

    name: str
    single: Sequence[LogFile]
    repeating: Sequence[LogFile]

    @property
    def files(self) -> list[LogFile]:
        return [*self.single, *self.repeating]


@dataclass(slots=True)
class Work:
    hours: list[Hour] = field(default_factory=list)
    unusable: dict[str, str] = field(default_factory=dict)
    held_back: dict[str, str] = field(default_factory=dict)
    """Readable files that are not billed, with the reason."""


def plan_work(listing: Sequence[LogFile], manifest: Manifest, check: Check) -> Work:
    """`check` is asked about the files of touched hours only."""
    by_hour: dict[str, list[LogFile]] = defaultdict(list)
    for file in listing:
        by_hour[file.hour].append(file)
    here = {file.name for file in listing}
    missing: dict[str, str] = {file.hour: name for name, file in manifest.billed.items() if name not in here}
    work = Work()
    for hour, files in by_hour.items():
        _plan_hour(files, manifest, missing.get(hour), check, work)
    return work


def _plan_hour(files: Sequence[LogFile], manifest: Manifest, missing: str | None, check: Check, work: Work) -> None:
    """`files` are all of one hour, `missing` is one that was billed in it and is gone."""
    changed = [file for file in files if manifest.billed.get(file.name) != file]
    if not changed:
        return
    found = {file.name: check(file.name) for file in files}
    unusable = {name: facts.reason for name, facts in found.items() if isinstance(facts, Unusable)}
    work.unusable |= unusable
    arrived = [file for file in changed if file.name not in unusable]
    if not arrived:
        return
    lost = missing or next((name for name in unusable if name in manifest.billed), None)
    if lost is not None:
        reason = f"waits: {lost} was billed and can no longer be read, so the hour keeps its counts"
        work.held_back |= {file.name: reason for file in arrived}
        return
    healthy = [(file, facts) for file in files if isinstance(facts := found[file.name], Usable)]
    twice = repeating((file.name, facts) for file, facts in healthy)
    work.hours.append(
        Hour(
            files[0].hour,
            single=[file for file, _ in healthy if file.name not in twice],
            repeating=[file for file, _ in healthy if file.name in twice],
        )
    )
