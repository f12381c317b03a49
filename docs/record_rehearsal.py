"""Record a rehearsal as a picture: `python docs/record_rehearsal.py` plays the default one and writes docs/rehearsal.svg.

What is drawn is what the terminal shows: the live view in the middle of the outage, then how the report begins.
"""

import contextlib
import io
import threading
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.text import Text

from twinbus.rehearsal.bill import bill_of
from twinbus.rehearsal.chronicle import Moment, MomentKind
from twinbus.rehearsal.engines import choose_engine
from twinbus.rehearsal.live_view import picture
from twinbus.rehearsal.rehearsal import Rehearsal
from twinbus.rehearsal.report_text import report_parts
from twinbus.rehearsal.script import default_script
from twinbus.rehearsal.settings import RehearsalSettings
from twinbus.rehearsal.status import Status
from twinbus.rehearsal.throwaway_stage import throw_away_stage

FILE = Path(__file__).with_name("rehearsal.svg")
WIDTH = 84
INTO_THE_OUTAGE_S = 12.0
PARTS_SHOWN = 4  # the verdict, the sends, the ledger and the outage
# Rich's own frame, without fonts from elsewhere.
FRAME = """\
<svg viewBox="0 0 {terminal_width} {terminal_height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
<rect fill="#15181e" width="{terminal_width}" height="{terminal_height}" rx="8"/>
<g transform="translate(9, 9)" clip-path="url(#{unique_id}-clip-terminal)">{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def main() -> None:
    frames: list[Status] = []
    timers: list[threading.Timer] = []

    def hear(moment: Moment) -> None:
        print(f"{moment.at_s:6.1f} s  {moment.kind} {moment.text}")
        if moment.kind is MomentKind.FAULT and not timers:
            timers.append(threading.Timer(INTO_THE_OUTAGE_S, lambda: frames.append(rehearsal.status())))
            timers[0].start()

    engine, drain = choose_engine(None)
    with throw_away_stage() as stage, contextlib.closing(drain):
        settings = RehearsalSettings(engine=engine)
        rehearsal = Rehearsal(stage, default_script(), settings, drain, lambda place: bill_of(place, None), hear)
        report = rehearsal.run()
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text("$ twinbus rehearse", "bold"))
    console.print(picture(frames[0]))
    for part in islice(report_parts(report), PARTS_SHOWN):
        console.print("", part, sep="\n")
    FILE.write_text(console.export_svg(title="", code_format=FRAME))


if __name__ == "__main__":
    main()
