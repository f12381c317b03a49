"""What earlier runs have billed of one log: a JSON file beside the counts, replaced whole when the counts are written.

A run that dies between the two does the same hours again, which changes nothing.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from twinbus.errors import MessagingError
from twinbus.meter.log_check import LogFile

VERSION = 1


class ManifestDamaged(MessagingError):
    """The notes of earlier runs cannot be read."""


@dataclass(slots=True)
class Manifest:
    """`billed` are the files in the counts, as they were then; `unusable` those that could not be read."""

    billed: dict[str, LogFile] = field(default_factory=dict)
    unusable: dict[str, str] = field(default_factory=dict)

    def bill(self, files: Iterable[LogFile]) -> None:
        for file in files:
            self.billed[file.name] = file
            self.unusable.pop(file.name, None)


def read_manifest(file: Path) -> Manifest:
    """An empty one where there is no file yet."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        return Manifest({name: LogFile(name, *stat) for name, stat in document["billed"].items()}, document["sick"])
    except FileNotFoundError:
        return Manifest()
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ManifestDamaged(
            f"{file} is damaged. Remove the folder {file.parent} and bill the whole log again."
        ) from None


def billed_elsewhere(notes: Path, listing: Iterable[LogFile]) -> Path | None:
    """The log that has these files under another path, if one was billed: names of files are given once.

    `notes` is where the manifest of the log would be. A log that was moved or copied would be billed twice.
    """
    files = {(file.name, file.size) for file in listing}
    # Drafts of a run that died are no notes: they may be incomplete, or those of this very log.
    for other in sorted(notes.parent.glob(f"[!_]*{notes.suffix}")):
        if other != notes and not files.isdisjoint(
            (each.name, each.size) for each in read_manifest(other).billed.values()
        ):
            return Path(json.loads(other.read_text(encoding="utf-8"))["log"])
    return None


def write_manifest(file: Path, manifest: Manifest, log: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    document: Mapping[str, object] = {
        "version": VERSION,
        "log": str(log),
        "billed": {name: (each.size, each.modified_ns) for name, each in sorted(manifest.billed.items())},
        "sick": dict(sorted(manifest.unusable.items())),
    }
    draft = file.with_name(f"_tmp-{file.name}")
    with draft.open("w", encoding="utf-8") as stream:
        json.dump(document, stream, indent=0)
        stream.flush()
        os.fsync(stream.fileno())
    draft.rename(file)
