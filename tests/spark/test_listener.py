from types import SimpleNamespace

from twinbus.pipeline.listener import LagListener, StreamProgress, lag_of

ID = "61adc966-7931-47ce-ba9e-6a941ee213b1"


def source(end: str | None, latest: str | None) -> SimpleNamespace:
    return SimpleNamespace(endOffset=end, latestOffset=latest)


BROWSING = source(
    '{"v": 1, "mode": "browse", "entity": "orders", "from": {"0": 1, "3": 1}, "to": {"0": 5, "3": 7}}',
    '{"v": 1, "mode": "browse", "entity": "orders", "to": {"0": 5, "3": 17}}',
)
CONSUMING = source(
    '{"v": 1, "mode": "consume", "entity": "prices", "owner": "o", "claim": {}}',
    '{"v": 1, "mode": "consume", "entity": "prices", "waiting": {"0": 4}}',
)


def event(*sources: SimpleNamespace) -> SimpleNamespace:
    progress = SimpleNamespace(
        id=ID,
        name="copy",
        batchId=7,
        numInputRows=12,
        processedRowsPerSecond=3.5,
        sources=sources,
        timestamp="2026-01-02T12:00:00.000Z",
    )
    return SimpleNamespace(progress=progress, id=ID)


def test_lag_is_reported_by_entity_and_fragment() -> None:
    assert lag_of([BROWSING, CONSUMING]) == {"orders": {0: 0, 3: 10}, "prices": {0: 4}}


def test_the_age_of_the_oldest_message_counts_from_when_the_batch_began() -> None:
    waiting = source(BROWSING.endOffset, BROWSING.latestOffset.replace('"to"', '"oldest": 1767355190500, "to"'))
    told: list[StreamProgress] = []
    LagListener(told.append).onQueryProgress(event(waiting))
    assert told[0].oldest_age_s == 9.5
    assert str(told[0]).endswith("; the oldest waits 10 s")
    LagListener(told.append).onQueryProgress(event(CONSUMING))
    assert told[1].oldest_age_s is None


def test_how_far_a_query_is_behind_is_unknown_until_its_source_has_been_asked() -> None:
    """The first batch after a restart is planned already, and older Sparks do not ask at all."""
    told: list[StreamProgress] = []
    LagListener(told.append).onQueryProgress(event(source(CONSUMING.endOffset, None)))
    assert told[0].behind is None
    assert str(told[0]) == "copy: batch 7, 12 rows"


def test_sources_of_other_kinds_are_left_out() -> None:
    assert lag_of([source(None, None), source("12", "nonsense"), source('{"logOffset":1}', '{"logOffset":2}')]) == {}


def test_a_listener_keeps_and_reports_the_newest_progress_until_the_query_ends() -> None:
    told: list[StreamProgress] = []
    listener = LagListener(told.append)
    listener.onQueryProgress(event(BROWSING))
    assert listener.latest[ID].behind == 10
    assert [str(each) for each in told] == ["copy: batch 7, 12 rows, 10 behind; orders (3: 10)"]
    listener.onQueryProgress(event(CONSUMING))
    assert listener.latest[ID].behind == 4
    listener.onQueryTerminated(event())
    assert listener.latest == {}
