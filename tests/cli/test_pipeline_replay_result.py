"""What a replay says at its end, without Spark."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from twinbus.cli.output import Output
from twinbus.cli.pipeline.replay import _reported
from twinbus.pipeline.replay.lake_job import LakeReplay
from twinbus.pipeline.replay.replay_tally import Tally
from twinbus.pipeline.stop_request import StopRequest


def test_where_to_go_on_is_printed_although_the_page_about_the_run_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its disk may be full by then."""
    spark: Any = None  # only a round needs it
    stop = StopRequest(None)
    job = LakeReplay(spark, {}, stop)
    reached = datetime(2026, 11, 19, 5, tzinfo=UTC)
    job.tallies = [Tally("orders", "orders", 9, replayed=4, go_on_from=reached)]
    with pytest.raises(OSError, match="run"), _reported(job, stop, Output(as_json=True), tmp_path / "gone" / "run"):
        pass
    (record,) = json.loads(capsys.readouterr().out)
    assert datetime.fromisoformat(record["go_on_from"]) == reached
