"""Scripts of faults: defaults, jitter, files, and what is wrong with some."""

import json
import shutil
import tomllib
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from twinbus.errors import ArgumentError, MessagingError
from twinbus.rehearsal.script import SCRIPTS, Fault, FaultKind, Script, Where, default_script, jittered
from twinbus.rehearsal.script_file import parse_script, read_script
from twinbus.rehearsal.stage import GivenStage, Place, run_command

TOML = """
duration = 60
jitter = 0

[[fault]]
kind = "slow-store"
at = 40
for = 10
store = 1
ms = 200

[[fault]]
kind = "kill"
at = 10
for = 20
"""


def test_the_default_is_an_outage_then_a_store_down_then_a_slow_one() -> None:
    kill, down, slow = default_script().faults
    assert (kill.kind, kill.duration_s) == (FaultKind.KILL, 20)
    assert (down.kind, slow.kind) == (FaultKind.STORE_DOWN, FaultKind.SLOW_STORE)


@pytest.mark.parametrize("duration_s", [5.0, 60.0, 600.0])
def test_the_default_keeps_its_proportions_whatever_the_duration(duration_s: float) -> None:
    script = default_script(duration_s)
    assert script.faults[0].duration_s == pytest.approx(duration_s * 0.4)
    assert script.faults[-1].end_s < duration_s


@pytest.mark.parametrize("duration_s", [5.0, 50.0, 600.0])
@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_that_comes_with_it_fits_any_duration(name: str, duration_s: float) -> None:
    script = SCRIPTS[name](duration_s)
    assert script.faults
    assert jittered(script, Random(1)).duration_s == duration_s


def test_what_flaps_is_down_for_less_than_the_failover_interval_whatever_the_duration() -> None:
    for duration_s in (20.0, 50.0, 200.0):
        *blinks, last = SCRIPTS["flapping"](duration_s).faults
        assert all(each.duration_s <= 0.601 for each in blinks)
        assert last.duration_s > 1


def test_faults_of_the_two_namespaces_may_overlap() -> None:
    faults = Fault(FaultKind.KILL, 1, 5), Fault(FaultKind.HANG, 2, 2, where=Where.SECONDARY)
    assert Script(10.0, faults).faults_of(Where.SECONDARY) == [faults[1]]
    document = {"duration": 9, "fault": [{"kind": "hang", "at": 1, "for": 2, "where": "secondary"}]}
    (fault,) = parse_script(document).faults
    assert str(fault) == "the secondary hangs for 2 s"
    with pytest.raises(ArgumentError, match="'moon' is not a place for a fault"):
        parse_script({"duration": 9, "fault": [{"kind": "kill", "at": 1, "for": 2, "where": "moon"}]})


@pytest.mark.parametrize("seed", range(20))
def test_jitter_delays_faults_and_never_makes_them_overlap(seed: int) -> None:
    plain = Script(10.0, (Fault(FaultKind.KILL, 1, 3), Fault(FaultKind.STORE_DOWN, 4.5, 5)), jitter_s=2.0)
    moved = jittered(plain, Random(seed))
    for before, after in zip(plain.faults, moved.faults, strict=True):
        assert before.at_s <= after.at_s <= before.at_s + 2.0
        assert after.duration_s == before.duration_s
    assert all(fault.end_s <= following.at_s for fault, following in pairwise(moved.faults))
    assert moved.faults[-1].end_s <= moved.duration_s
    assert moved == jittered(plain, Random(seed))


def test_a_file_is_read_as_toml_or_json_and_sorted_by_time(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(TOML)
    script = read_script(tmp_path / "s.toml")
    assert script == Script(
        60.0,
        (Fault(FaultKind.KILL, 10, 20), Fault(FaultKind.SLOW_STORE, 40, 10, store=1, slow_ms=200)),
        jitter_s=0.0,
    )
    document = {"duration": 60, "fault": [{"kind": "disconnect", "at": 5}]}
    (tmp_path / "s.json").write_text(json.dumps(document))
    assert read_script(tmp_path / "s.json").faults == (Fault(FaultKind.DISCONNECT, 5),)
    assert read_script(tmp_path / "s.json", duration_s=7.0).duration_s == 7.0


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({}, "needs 'duration'"),
        ({"duration": 0}, "must be more than 0"),
        ({"duration": "long"}, "'duration' must be a number"),
        ({"duration": True}, "'duration' must be a number"),
        ({"duration": 9, "speed": 1}, "cannot have 'speed'"),
        ({"duration": 9, "jitter": -1}, "cannot be negative"),
        ({"duration": 9, "fault": [1]}, "A fault must be a table"),
        ({"duration": 9, "fault": [{"at": 1}]}, "needs 'kind' and 'at'"),
        ({"duration": 9, "fault": [{"kind": "flood", "at": 1}]}, "not a kind of fault"),
        ({"duration": 9, "fault": [{"kind": "kill", "at": 1}]}, "longer than zero"),
        ({"duration": 9, "fault": [{"kind": "kill", "at": -1, "for": 1}]}, "starts before"),
        ({"duration": 9, "fault": [{"kind": "kill", "at": 5, "for": 5}]}, "ends at 10 s"),
        ({"duration": 9, "fault": [{"kind": "store-down", "at": 1, "for": 1, "store": -1}]}, "numbered from 0"),
        ({"duration": 9, "fault": [{"kind": "slow-store", "at": 1, "for": 1, "ms": 0}]}, "1 to 60000 ms"),
        (
            {"duration": 9, "fault": [{"kind": "kill", "at": 1, "for": 4}, {"kind": "disconnect", "at": 3}]},
            "one fault of a namespace may be in force",
        ),
    ],
)
def test_a_script_that_is_wrong_says_what_to_change(document: object, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        parse_script(document)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("s.toml", "duration = ", "not TOML"),
        ("s.json", "{", "not JSON"),
        ("s.toml", "a = 1", "s.toml: A script cannot have"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ArgumentError, match=said):
        read_script(tmp_path / name)
    with pytest.raises(ArgumentError, match="cannot be read"):
        read_script(tmp_path / "none.toml")


def test_the_scripts_in_the_documentation_are_some() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/rehearse.md").read_text()
    texts = [part.split("```")[0] for part in page.split("```toml\n")[1:]]
    kinds = [parse_script(tomllib.loads(text)).kinds for text in texts]
    assert frozenset.union(*kinds) == set(FaultKind)


COMMAND = """
duration = 30
jitter = 0

[[fault]]
kind = "command"
at = 10
for = 5
name = "node b is killed"
begin = "{touch} '{begun}'"
end = "{touch} '{over}'"
"""


def test_a_command_of_a_script_is_run_when_it_begins_and_when_it_is_over(tmp_path: Path) -> None:
    begun, over = tmp_path / "it began", tmp_path / "it is over"
    text = COMMAND.format(touch=shutil.which("touch"), begun=begun, over=over)
    (fault,) = parse_script(tomllib.loads(text)).faults
    place = Place("Endpoint=sb://nowhere/;SharedAccessKeyName=a;SharedAccessKey=b", None)
    stage = GivenStage(place, place, [FaultKind.COMMAND])
    assert str(fault) == "node b is killed, for 5 s"
    stage.begin(fault)
    assert (begun.exists(), over.exists()) == (True, False)
    stage.mend(fault)
    assert over.exists()


def test_a_command_that_fails_is_no_fault_that_was_played() -> None:
    with pytest.raises(MessagingError, match="'false' ended with 1"):
        run_command(["false"])
    with pytest.raises(MessagingError, match="cannot be run"):
        run_command(["there-is-no-such-program"])


def test_the_sender_is_restarted_and_nothing_else_is_done_to_it() -> None:
    (fault,) = parse_script({"duration": 9, "fault": [{"kind": "restart", "at": 1}]}).faults
    assert fault.where is Where.SENDER
    assert str(fault) == "the paired sender is restarted"
    for wrong in (Fault(FaultKind.KILL, 1, 5, where=Where.SENDER), Fault(FaultKind.RESTART, 1)):
        with pytest.raises(ArgumentError, match="a sender is restarted"):
            Script(10.0, (wrong,))
