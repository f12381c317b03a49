"""When somebody has to look into the backlog, where, and for which entities. Its caller holds the lock of the pair."""

from collections.abc import Mapping

from twinbus.clock import NEVER, Millis
from twinbus.pairing.deciding.entity_watch import EntityWatch
from twinbus.pairing.deciding.survey import Survey

Home = list[tuple[EntityWatch, BaseException | None]]
"""Entities that have caught up, or that are not waited for any longer, and why."""


class Lookout:
    """`has_waiting`: messages waited in the backlog when the pair began, as far as is known. `time_max` is how long an entity
    may catch up."""

    def __init__(self, watches: Mapping[str, EntityWatch], time_max: Millis, *, has_waiting: bool) -> None:
        self._watches, self._time_max = watches, time_max
        self.has_waiting = has_waiting
        self._looking: set[str] | None = None
        """The entities for which somebody is looking just now, by key."""
        self._looks_everywhere = False

    def doubt(self, watch: EntityWatch, queues: Mapping[int, str]) -> None:
        """What waits may be of its sessions, from before this process was restarted."""
        if self.has_waiting:
            watch.catching_up.doubt(queues)
            watch.whole.is_catching_up = watch.whole.failed_over_at is None

    @property
    def is_needed(self) -> bool:
        return any(each.catching_up.wants_survey for each in self._watches.values())

    def next_look_at(self) -> Millis:
        if self._looking is not None:
            return NEVER
        return min((each.catching_up.next_survey_at() for each in self._watches.values()), default=NEVER)

    def start(self, queues: Mapping[int, str], now: Millis) -> dict[int, str] | None:
        """Those of the backlog queues to look into now; None if that is not due."""
        if now < self.next_look_at():
            return None
        wanting = {key: each for key, each in self._watches.items() if each.catching_up.wants_survey}
        for watch in wanting.values():
            watch.catching_up.doubt_begins(now, watch.whole.failed_over_at is not None)
        wanted = [each.catching_up.queues() for each in wanting.values()]
        self._looking, self._looks_everywhere = set(wanting), None in wanted
        chosen = set(queues) if self._looks_everywhere else set().union(*(each or set() for each in wanted))
        return {index: queues[index] for index in sorted(chosen)}

    def found(self, survey: Survey | None, now: Millis) -> Home:
        """None if nobody could look."""
        looked, self._looking = self._looking or set(), None
        if survey is not None and self._looks_everywhere and survey.is_complete and not survey.queues:
            self.has_waiting = False
        home: Home = []
        for key, watch in self._watches.items():
            each = watch.catching_up
            # One that began to catch up meanwhile may need queues that were not looked into.
            if key not in looked or not each.wants_survey or (survey and survey.began_at < (each.since or 0)):
                continue
            error: BaseException | None = None
            is_over = each.surveyed(key, survey) if survey is not None else each.not_surveyed(now)
            if not is_over and each.since is not None and now - each.since >= self._time_max:
                error = TimeoutError("Some messages were not home within ordered_recovery_max.")
                each.stop()
            if is_over or error is not None:
                watch.whole.is_catching_up = False
                home.append((watch, error))
        return home
