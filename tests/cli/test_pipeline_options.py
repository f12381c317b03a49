"""Values that options of Spark jobs do not take: one line that names the option, before Spark is started."""

import pytest

from twinbus.cli.app import run

AWAY = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true"
BILL = ["pipeline", "bill"]
CAPTURE = ["pipeline", "capture", "orders", "--connection-string", AWAY, "--lake", "lake"]
REPLAY = ["pipeline", "replay", "--connection-string", AWAY, "--lake", "lake", "--dry-run"]
SYPHON = ["pipeline", "syphon", "--primary", "env:P", "--secondary", "env:S"]


@pytest.mark.parametrize(
    ("command", "words", "told"),
    [
        (BILL, ["--month", "13"], "--month: '13' is not a month. Write it like 2026-11."),
        (CAPTURE, ["--every", "soon"], "--every: 'soon' is not a duration."),
        (CAPTURE, ["--every", "2d"], "--every 2d: must be at most a day."),
        (CAPTURE, ["--format", "orc"], "--format is parquet, delta, iceberg, not 'orc'."),
        (CAPTURE, ["--batch-messages", "0"], "'--batch-messages'"),
        (CAPTURE, ["--lake", ""], "--lake '': name a folder."),
        (CAPTURE, ["--lake", "/"], "--lake '/': name a folder."),
        (REPLAY, ["--lake", ""], "--lake '': name a folder."),
        (REPLAY, ["--rate", "nan"], "'--rate'"),
        (REPLAY, ["--rate", "inf"], "--rate inf:"),
        (REPLAY, ["--rate", "0"], "'--rate'"),
        (REPLAY, ["--sample", "-1"], "'--sample'"),
        (REPLAY, ["--message-ids", "some"], "'--message-ids'"),
        (SYPHON, ["--budget", "soon"], "--budget: 'soon' is not a duration."),
        (SYPHON, ["--budget", "2h"], "The budget of a round"),
        (SYPHON, ["--rate", "inf"], "The rate must be above zero"),
        (SYPHON, ["--destination-rate", "inf"], "The rate of a destination"),
        (SYPHON, ["--pumps-per-queue", "0"], "'--pumps-per-queue'"),
    ],
)
def test_a_value_that_an_option_does_not_take_is_refused_in_one_line_that_names_the_option(
    command: list[str], words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, *words]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert told in line
