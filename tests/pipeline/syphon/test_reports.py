from tests.pipeline.syphon.lane_reports import report
from twinbus.pairing.syphon.broker_clock import BrokerClock
from twinbus.pairing.syphon.destinations import Cut, Destination, Lock, PumpMemory
from twinbus.pipeline.syphon.reports import DestinationTally, LaneStatus, from_row, to_rows
from twinbus.pipeline.syphon.round_metrics import metrics_table


def test_a_report_comes_back_from_its_row_as_it_was() -> None:
    left = {2**60: Lock(99), 7: Lock(98, b"token")}
    following = {"s": {8: 97, 2**60 + 1: 96}}
    destination = Destination(Cut.BY_KEY, 5, 2_000, left, following)
    memory = PumpMemory({"orders": destination}, 60_000, BrokerClock(-3_600_000, 2))
    made = report(LaneStatus.STUCK, memory=memory, error="busy", moved=3, left=2, throttled=1, rate=12.5)
    made.destinations[None] = DestinationTally(dead_lettered=4)
    (row,) = to_rows([made]).to_pylist()
    assert from_row(row) == made


def test_metrics_have_totals_names_and_times_and_no_memory_of_the_pump() -> None:
    made = report(LaneStatus.EMPTY, pair=1, moved=3, dead_lettered=1)
    made.finished_at = 1_500
    (row,) = metrics_table([made], 7, ["one", "two"]).to_pylist()
    assert (row["round"], row["pair"], row["moved"], row["dead_lettered"]) == (7, "two", 3, 1)
    assert row["finished_at"].timestamp() == 1.5
    assert row["destinations"][0]["path"] == "orders"
    assert "memory" not in row
