"""What the .NET client says on the wire, and what it needs to hear: each script in `scripts` is a scenario (see `player`)."""

from pathlib import Path

import pytest

from tests.interop.dotnet.notation import Mismatch, Reader, decode, encode, match, show
from tests.interop.dotnet.player import Player, feature_of, scripts, variants
from tests.interop.results import Recorder
from tests.interop.running_server import RunningServer

VERSION = "7.19.0"


def name_of(script: Path, values: dict[str, str]) -> str:
    return " ".join([script.stem, *(f"{name}={value}" for name, value in values.items())])


CASES = {name_of(script, values): (script, values) for script in scripts() for values in variants(script)}


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    return Recorder(".NET SDK, as scripts", VERSION)


@pytest.mark.parametrize("name", CASES)
def test_the_client_hears_what_it_needs(server: RunningServer, recorder: Recorder, name: str) -> None:
    script, values = CASES[name]
    try:
        Player(server, values).play(script)
    except BaseException as error:
        recorder.record(feature_of(script), name, "fail", str(error))
        raise
    recorder.record(feature_of(script), name, "pass")


@pytest.mark.parametrize(
    "text",
    [
        "[-, true, 'it\\'s', :a:b, x'00ff', uint 7, int -7, long 5, double 1.5, uuid 00000000-0000-0000-0000-00000000000a]",
        "{'a' = ubyte 1, :b = [char x, ts 5]}",
        "source ['/q', @[long 1, long 2]]",
        "<:com.microsoft:timespan long 30>",
    ],
)
def test_values_are_the_same_after_their_way_over_the_wire(text: str) -> None:
    value = Reader(text, {}).value()
    assert decode(encode(value), 0)[0] == value
    assert Reader(show(value).replace("it's", "it\\'s"), {}).value() == value


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("int 200", "uint 200"),
        ("'x'", ":x"),
        ("[int 1]", "[int 1, int 2]"),
        ("{'a' = int 1}", "{'a' = int 1, 'b' = -}"),
        ("uuid ?", "x'00'"),
        ("accepted[]", "rejected[]"),
    ],
)
def test_another_type_or_more_than_is_wanted_is_a_mismatch(wanted: str, found: str) -> None:
    with pytest.raises(Mismatch):
        match(Reader(wanted, {}).value(), Reader(found, {}).value(), {})
