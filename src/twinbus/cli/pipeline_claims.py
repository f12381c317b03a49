"""`twinbus pipeline release-claims`: what a streaming query with mode=consume claimed and will not read any more."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from twinbus.cli.bulk_messages import DeadLetterOption, EntityArgument, SubscriptionOption, path_of
from twinbus.cli.command import Call, command
from twinbus.cli.message_records import counted
from twinbus.errors import ArgumentError
from twinbus.pipeline.connection_options import ConnectionOptions
from twinbus.pipeline.source.checkpoints import claim_owner
from twinbus.pipeline.source.claims import claims_of_queries, release_claims
from twinbus.pipeline.source.live_entity import LiveEntity
from twinbus.pipeline.source.ranges import count

COLUMNS = ("owner", "messages", "first_sequence_number")


def register(app: typer.Typer) -> None:
    command(app, "release-claims")(release)


def release(
    call: Call,
    entity: EntityArgument,
    *,
    subscription: SubscriptionOption = None,
    dead_letter: DeadLetterOption = False,
    owner: Annotated[list[str] | None, typer.Option("--owner", help="Release the claims of this owner.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="Release the claims of the query that has this checkpoint.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Release the claims of all queries.")] = False,
) -> None:
    """Show what streaming queries claimed of an entity, or make it active again. Stop the query first."""
    path = path_of(entity, subscription, dead_letter)
    live = LiveEntity(ConnectionOptions.from_options({"connectionString": call.connection_string}), path)
    owners = _owners(owner, checkpoint, every)
    if owners is not None and not owners:
        _show(call, live)
        return
    released = live.call(lambda access: release_claims(access, owners))
    total = sum(released.values())
    call.output.done(f"{counted(total)} of '{path}' made active again.", entity=path, released=released)


def _owners(given: list[str] | None, checkpoint: Path | None, every: bool) -> Collection[str] | None:
    """None: all; none named: show only."""
    if every and (given or checkpoint is not None):
        raise ArgumentError("--all means every owner: leave --owner and --checkpoint out, or --all.")
    if every:
        return None
    return [*(given or ()), *([claim_owner(checkpoint)] if checkpoint is not None else ())]


def _show(call: Call, live: LiveEntity) -> None:
    claims = live.call(claims_of_queries)
    rows = [
        {"owner": owner, "messages": count(ranges), "first_sequence_number": min(ranges)[0]}
        for owner, ranges in sorted(claims.items())
    ]
    if rows or call.output.as_json:
        call.output.table(COLUMNS, rows)
    else:
        call.output.done(f"No query has claimed messages of '{live.path}'.")
