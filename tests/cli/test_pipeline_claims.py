"""Showing and releasing what streaming queries claimed, against a real namespace."""

import json
from pathlib import Path

from tests.cli.conftest import Commands
from twinbus.client.blocking import BlockingNamespace


def claim(commands: Commands, queue: str, owner: str | None, count: int) -> None:
    with BlockingNamespace.connect(commands.served.ready["connection_string"]) as namespace:
        namespace.run(namespace.extras(queue).claim(count, owner=owner))


def filled(commands: Commands, queue: str) -> str:
    commands.json("queue", "create", queue)
    commands.json("send", queue, "x", "--count", "9")
    for owner, count in (("first", 2), (None, 1), ("second", 3)):
        claim(commands, queue, owner, count)
    return queue


def counts(commands: Commands, queue: str) -> tuple[int, int]:
    with BlockingNamespace.connect(commands.served.ready["connection_string"]) as namespace:
        (head,) = namespace.run(namespace.extras(queue).fragment_heads())
    return head.active, head.deferred


def test_claims_are_shown_by_owner_and_nothing_is_changed(commands: Commands) -> None:
    queue = filled(commands, "claims-shown")
    assert commands.json("pipeline", "release-claims", queue) == [
        {"owner": "first", "messages": 2, "first_sequence_number": 1},
        {"owner": "second", "messages": 3, "first_sequence_number": 4},
    ]
    assert "second" in commands.text("pipeline", "release-claims", queue)
    assert counts(commands, queue) == (3, 6)


def test_the_claims_of_one_owner_are_released(commands: Commands) -> None:
    queue = filled(commands, "claims-of-one")
    released = commands.json("pipeline", "release-claims", queue, "--owner", "second")
    assert released == {"entity": queue, "released": {"second": 3}, "removed": 0}
    assert counts(commands, queue) == (6, 3)


def test_all_claims_are_released_and_other_deferred_messages_stay(commands: Commands) -> None:
    queue = filled(commands, "claims-of-all")
    text = commands.text("pipeline", "release-claims", queue, "--all")
    assert text == f"5 messages of '{queue}' made active again.\n"
    assert counts(commands, queue) == (8, 1)
    assert commands.text("pipeline", "release-claims", queue) == f"No query has claimed messages of '{queue}'.\n"


def logged(checkpoint: Path, number: int, *offsets: object) -> None:
    (checkpoint / "offsets").mkdir(exist_ok=True)
    lines = ["v1", "{}", *(json.dumps(offset) for offset in offsets)]
    (checkpoint / "offsets" / str(number)).write_text("\n".join(lines))
    (checkpoint / "offsets" / f".{number}.crc").write_bytes(b"\x00")


def offset(queue: str, owner: str, *ranges: list[int]) -> dict[str, object]:
    return {"v": 1, "mode": "consume", "entity": queue, "owner": owner, "claim": {"0": list(ranges)}}


def test_a_checkpoint_tells_whose_claims_to_release(commands: Commands, tmp_path: Path) -> None:
    queue = filled(commands, "claims-of-checkpoint")
    logged(tmp_path, 9, offset(queue, "second"))
    logged(tmp_path, 10, {"logOffset": 3}, offset("other", "third"), offset(queue, "first", [1, 3]))
    released = commands.json("pipeline", "release-claims", queue, "--checkpoint", str(tmp_path))
    assert released == {"entity": queue, "released": {"first": 2}, "removed": 0}


def test_what_a_committed_batch_had_is_removed_and_not_released(commands: Commands, tmp_path: Path) -> None:
    """The last batch of a query that was stopped is in its sink already: released, it would be read again."""
    queue = filled(commands, "claims-committed")
    logged(tmp_path, 3, offset(queue, "second", [1, 6]))  # 1 to 3 are others' by now
    logged(tmp_path, 4, offset(queue, "second", [6, 7]))
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "3").write_text("v1\n{}")
    released = commands.json("pipeline", "release-claims", queue, "--checkpoint", str(tmp_path))
    assert released == {"entity": queue, "released": {"second": 1}, "removed": 2}
    assert counts(commands, queue) == (4, 3)


def test_what_a_batch_had_of_a_queue_that_was_made_again_is_released_and_not_removed(
    commands: Commands, tmp_path: Path
) -> None:
    """The query has claimed the same numbers again, and was killed before it wrote that down."""
    queue = filled(commands, "claims-again")
    before: dict[str, object] = {**offset(queue, "second", [1, 6]), "created": 1}
    logged(tmp_path, 3, before)
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "3").write_text("v1\n{}")
    released = commands.json("pipeline", "release-claims", queue, "--checkpoint", str(tmp_path))
    assert released == {"entity": queue, "released": {"second": 3}, "removed": 0}


def test_what_makes_no_sense_is_refused(commands: Commands, tmp_path: Path) -> None:
    commands.json("queue", "create", "claims-none")
    commands.text("pipeline", "release-claims", "claims-none", "--all", "--owner", "x", code=2)
    assert "--all means every owner" in commands.errors
    commands.text("pipeline", "release-claims", "claims-none", "--checkpoint", str(tmp_path), code=2)
    assert "is not the checkpoint" in commands.errors
    logged(tmp_path, 0, {"v": 1}, "-")
    commands.text("pipeline", "release-claims", "claims-none", "--checkpoint", str(tmp_path), code=2)
    assert "does not belong to a query with mode=consume" in commands.errors
    (tmp_path / "offsets" / "0").write_bytes(b"v1\n{}\n\xff")
    commands.text("pipeline", "release-claims", "claims-none", "--checkpoint", str(tmp_path), code=2)
    assert "does not belong to a query with mode=consume" in commands.errors
    logged(tmp_path, 0, {"v": 1, "mode": "consume", "entity": "claims-none", "owner": "first"})
    commands.text("pipeline", "release-claims", "claims-none", "--checkpoint", str(tmp_path), code=2)
    assert "The checkpoint is damaged" in commands.errors
    logged(tmp_path, 1, offset("claims-other", "first"))
    commands.text("pipeline", "release-claims", "claims-none", "--checkpoint", str(tmp_path), code=2)
    assert "claims messages of 'claims-other', not of 'claims-none'" in commands.errors
    assert "could not be found" in commands.failure("pipeline", "release-claims", "claims-gone", "--all")
