"""`twinbus pipeline syphon`: what it refuses before Spark is started."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.pairing.conftest import Spaces
from tests.pipeline.syphon.backlog import Backlog
from twinbus.cli.app import run
from twinbus.cli.pipeline.syphon import _written_down
from twinbus.clock import SystemClock
from twinbus.errors import ArgumentError
from twinbus.pipeline.connection_options import ConnectionOptions
from twinbus.pipeline.stop_request import StopRequest
from twinbus.pipeline.syphon.driver import SyphonJob
from twinbus.pipeline.syphon.key_folder import KeyFolder
from twinbus.pipeline.syphon.pairs import PairToSyphon
from twinbus.pipeline.syphon.rounds import PairPlaces
from twinbus.pipeline.syphon.syphon_settings import SyphonSettings

SECRET = "dmVyeSBzZWNyZXQ="
CONNECTION = f"Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=n;SharedAccessKey={SECRET};UseDevelopmentEmulator=true"


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = run(["pipeline", "syphon", *arguments])
    return code, capsys.readouterr().err


def test_on_a_cluster_a_connection_string_is_refused_and_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = refusal(capsys, "--primary", CONNECTION, "--secondary", CONNECTION, "--master", "spark://host:7077")
    assert code == 2
    assert "env:VARIABLE or file:PATH" in text
    assert SECRET not in text


def test_a_variable_or_file_that_is_missing_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, text = refusal(capsys, "--primary", "env:NO_SUCH_BUS")
    assert code == 2
    assert "NO_SUCH_BUS" in text
    code, text = refusal(capsys, "--primary", f"file:{tmp_path}/none")
    assert code == 2
    assert f"{tmp_path}/none" in text


def test_a_secondary_without_backlog_queues_is_said_before_spark_starts(
    capsys: pytest.CaptureFixture[str], spaces: Spaces
) -> None:
    code, text = refusal(
        capsys,
        *("--primary", spaces.primary.connection_string, "--secondary", spaces.secondary.connection_string),
        *("--secondary-endpoint", f"http://127.0.0.1:{spaces.secondary.http_port}", "--primary-name", "nobody"),
    )
    assert code == 1
    assert "no backlog queues of 'nobody'" in text


def test_a_primary_that_was_killed_is_still_known_by_its_name(
    capsys: pytest.CaptureFixture[str], spaces: Spaces
) -> None:
    spaces.primary.kill()
    code, text = refusal(capsys, "--data", str(spaces.primary.folder), "--primary-name", "nobody")
    assert code == 1
    assert "no backlog queues of 'nobody'" in text


def test_a_stop_file_of_an_earlier_job_is_not_taken_for_a_new_wish(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "stop").touch()
    code, text = refusal(capsys, "--stop-file", str(tmp_path / "stop"))
    assert code == 2
    assert "Remove it first" in text


@pytest.mark.parametrize("option", ["--budget=0s", "--budget=2h", "--budget=soon", "--pumps-per-queue=0", "--rate=0"])
def test_options_that_make_no_sense_are_refused(capsys: pytest.CaptureFixture[str], option: str) -> None:
    code, text = refusal(capsys, option)
    assert code == 2
    assert text.count("\n") == 1


def test_a_pair_takes_references_and_no_secrets(backlog: Backlog) -> None:
    plain = ConnectionOptions.from_options({"connectionString": CONNECTION})
    with pytest.raises(ArgumentError, match="as connectionStringEnv or connectionStringFile") as refused:
        PairToSyphon("p", PairPlaces(plain, plain), backlog.pair().backlog)
    assert SECRET not in str(refused.value)


def test_a_page_about_the_run_has_what_was_moved_and_what_waits(backlog: Backlog, tmp_path: Path) -> None:
    backlog.fill("orders", 30)
    spark: Any = None  # only a round needs it
    job = SyphonJob(spark, [backlog.pair()], SyphonSettings(), SystemClock(), StopRequest(None))
    with suppress(KeyboardInterrupt), _written_down(job, tmp_path / "run.html"):
        job.tallies[0].moved += 12
        job.on_round([])
        raise KeyboardInterrupt
    page = (tmp_path / "run.html").read_text()
    assert "<b>12</b><span>messages</span>" in page
    assert "<b>30</b><span>left</span>" in page
    assert backlog.name in page


def test_kept_connection_strings_are_for_their_owner_and_gone_afterwards() -> None:
    with KeyFolder() as keys:
        kept = keys.keep(CONNECTION)
        file = Path(kept.given)
        assert kept.resolve() == CONNECTION
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent.stat().st_mode & 0o777 == 0o700
    assert not file.exists()
