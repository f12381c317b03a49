"""A page about one run of a job: what was done and left at which moment in, HTML with plots out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from twinbus.html_report.page import Cell, figures, note, page, section, table
from twinbus.html_report.plots import Axes, area, line, lying_bars, round_up, time_plot

SAMPLES_MAX = 2_000
"""Of an entity. Every other one goes when there are more, so that a run of weeks has a page too."""


class Sample(NamedTuple):
    at_s: float
    done: int
    left: int | None
    """None: not known."""


class RunLog:
    """`now` counts seconds. Notes that say nothing new are not kept."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._start_s = now()
        self._samples: dict[str, list[Sample]] = {}

    def note(self, entity: str, done: int, left: int | None) -> None:
        samples = self._samples.setdefault(entity, [])
        if samples and samples[-1][1:] == (done, left):
            return
        if len(samples) >= SAMPLES_MAX:
            del samples[1::2]
        samples.append(Sample(self._now() - self._start_s, done, left))

    def html(self, title: str, heads: Sequence[str], records: Sequence[Mapping[str, object]]) -> str:
        """`records` are the result, as the command prints it; `heads` are the columns of it to show."""
        return page(title, self._parts(heads, records))

    def _parts(self, heads: Sequence[str], records: Sequence[Mapping[str, object]]) -> Iterator[str]:
        duration_s = max(self._now() - self._start_s, 0.001)
        done = {entity: samples[-1].done for entity, samples in self._samples.items()}
        total = sum(done.values())
        left = [samples[-1].left for samples in self._samples.values()]
        yield figures(
            (
                (f"{total:,}", "messages"),
                (f"{total / duration_s:,.0f}/s", "on average"),
                (f"{duration_s:,.1f} s", "from start to end"),
                ("?" if None in left else f"{sum(each or 0 for each in left):,}", "left"),
            )
        )
        over_time = self._total()
        axes = Axes(duration_s, round_up(max((each.done for each in over_time), default=1)))
        points = [(each.at_s, float(each.done)) for each in over_time]
        plots = [time_plot(axes, "Messages so far", (), line(axes, points, "good"))]
        waiting = [(each.at_s, float(each.left)) for each in over_time if each.left is not None]
        if waiting:
            axes = Axes(duration_s, round_up(max(value for _, value in waiting)))
            plots.append(time_plot(axes, "Messages left", (), area(axes, waiting, "backlog")))
        yield section("Over time", *plots)
        yield section("By entity", lying_bars("Messages by entity", done, dict.fromkeys(done, "accepted")))
        rows: list[list[Cell]] = [
            ["" if (value := each.get(head)) is None else str(value) for head in heads] for each in records
        ]
        yield section("Result", table(heads, rows) if rows else note("Nothing was selected."))

    def _total(self) -> list[Sample]:
        """Of all entities together, at each moment at which something is known of one of them."""
        latest: dict[str, Sample] = {}
        found: list[Sample] = []
        samples = [(sample, entity) for entity, each in self._samples.items() for sample in each]
        for sample, entity in sorted(samples, key=lambda each: each[0].at_s):
            latest[entity] = sample
            lefts = [each.left for each in latest.values() if each.left is not None]
            found.append(Sample(sample.at_s, sum(each.done for each in latest.values()), sum(lefts) if lefts else None))
        return found
