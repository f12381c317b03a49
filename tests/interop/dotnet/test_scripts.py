"""What the .NET client says on the wire, and what it needs to hear: each script in `scripts` is a scenario (see `player`)."""

from pathlib import Path

import pytest

from tests.interop.dotnet.notation import Mismatch, Reader, decode, encode, match, show
from tests.interop.dotnet.player import Player, scripts, variants
from tests.interop.running_server import RunningServer

CASES = [(script, values) for script in scripts() for values in variants(script)]


@pytest.mark.parametrize(
    ("script", "values"),
    CASES,
    ids=[" ".join([script.stem, *(f"{name}={value}" for name, value in values.items())]) for script, values in CASES],
)
def test_the_client_hears_what_it_needs(server: RunningServer, script: Path, values: dict[str, str]) -> None:
    Player(server, values).play(script)


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
