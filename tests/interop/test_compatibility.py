"""The compatibility page says what the suites recorded, and nothing else."""

from pathlib import Path

from tests.interop.compatibility import page
from tests.interop.results import Recorder, read_results

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


def test_the_page_counts_what_passed_and_gives_the_reason_for_the_rest(tmp_path: Path) -> None:
    recorder = Recorder("Go SDK", "1.2", folder=tmp_path)
    recorder.record("send", "one message", "pass")
    recorder.record("send", "a large one", "fail", "it was\nrefused | by us")
    recorder.record("TLS", "over a TLS port", "skip", "no certificate")
    text = page(read_results(tmp_path))
    assert "| Go SDK | 1.2 | 3 | 1 | 1 | 1 |" in text
    assert "| Go SDK 1.2 | send 1 of 2 |" in text
    assert "| Go SDK 1.2 | send | a large one | it was refused \\| by us |" in text
    assert "| Go SDK 1.2 | TLS | over a TLS port | no certificate |" in text


def test_the_page_shows_no_failure() -> None:
    """A scenario that fails fails its suite too; the page is generated from a run in which all of them passed."""
    text = PAGE.read_text(encoding="utf-8")
    assert text.startswith("# Compatibility\n")
    assert "## Failed" not in text
