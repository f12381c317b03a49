"""Record a rehearsal as a picture: `python docs/record_rehearsal.py` plays the default one and writes docs/rehearsal.svg.

The picture shows what the terminal shows: the live view in the middle of the outage, then how the report begins.
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
from twinbus.rehearsal.live_view import picture
from twinbus.rehearsal.rehearsal import Rehearsal
from twinbus.rehearsal.rehearsal_settings import RehearsalSettings
from twinbus.rehearsal.report import Status
from twinbus.rehearsal.report_text import report_parts
from twinbus.rehearsal.script import default_script
from twinbus.rehearsal.spark_drain import choose_engine
from twinbus.rehearsal.throwaway_stage import throw_away_stage

FILE = Path(__file__).with_name("rehearsal.svg")
WIDTH = 84
INTO_THE_OUTAGE_S = 12.0
PARTS_SHOWN = 4  # the verdict, the sends, the ledger and the outage
# Rich's own frame has a title bar and fonts from elsewhere.
FRAME = """\
<svg viewBox="0 0 SVG_WIDTH SVG_HEIGHT" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px; }}
{styles}
</style>
<defs>{lines}</defs>
<rect fill="#15181e" width="SVG_WIDTH" height="SVG_HEIGHT" rx="8"/>
<g transform="translate(14, 10)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
# In pixels, as rich draws them.
COLUMN, LINE, MARGIN = 12.2, 24.4, 28


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
    line_count = len(console.export_text(clear=False).splitlines())
    drawn = console.export_svg(title="", code_format=FRAME)
    drawn = drawn.replace("SVG_WIDTH", f"{WIDTH * COLUMN + MARGIN:.0f}")
    FILE.write_text(drawn.replace("SVG_HEIGHT", f"{line_count * LINE + MARGIN:.0f}"))


if __name__ == "__main__":
    main()
