"""`twinbus pipeline release-claims`: messages that a streaming query with mode=consume claimed and will not read."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.command import Call, command
from twinbus.cli.messages.bulk_messages import DeadLetterOption, EntityArgument, SubscriptionOption, path_of
from twinbus.cli.messages.message_records import counted
from twinbus.errors import ArgumentError

if TYPE_CHECKING:
    from twinbus.pipeline.source.live_entity import LiveEntity

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
        Path | None,
        typer.Option(
            "--checkpoint",
            help="Release the claims of the query with this checkpoint, but remove the messages of its last finished batch.",
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Release the claims of all queries.")] = False,
) -> None:
    """Show which messages of an entity are claimed by streaming queries, or make them active again. Stop the query first.

    When a query stops, the messages of its last finished batch are still claimed, and only its checkpoint tells them from
    the others. With --owner or --all they become active too and are read again.
    """
    from twinbus.pipeline.connection_options import ConnectionOptions
    from twinbus.pipeline.source.checkpoints import checkpoint_claims
    from twinbus.pipeline.source.claims import delete_committed, release_claims
    from twinbus.pipeline.source.live_entity import LiveEntity

    path = path_of(entity, subscription, dead_letter)
    live = LiveEntity(ConnectionOptions.from_options({"connectionString": call.connection_string}), path)
    if every and (owner or checkpoint is not None):
        raise ArgumentError("--all means every owner. Omit --owner and --checkpoint, or --all.")
    owners = None if every else list(owner or ())
    removed = 0
    if owners is not None and checkpoint is not None:
        of_query = checkpoint_claims(checkpoint, path)
        owners.append(of_query.owner)
        removed = live.call(lambda access: delete_committed(access, of_query))
    if owners is not None and not owners:
        _show(call, live)
        return
    released = live.call(lambda access: release_claims(access, owners))
    text = f"{counted(sum(released.values()))} of '{path}' made active again."
    if removed:
        text += f" {counted(removed)} of the last finished batch removed."
    call.output.done(text, entity=path, released=released, removed=removed)


def _show(call: Call, live: "LiveEntity") -> None:
    from twinbus.pipeline.source.claims import claims_of_queries
    from twinbus.pipeline.source.ranges import count

    claims = live.call(claims_of_queries)
    rows = [
        {"owner": owner, "messages": count(ranges), "first_sequence_number": min(ranges)[0]}
        for owner, ranges in sorted(claims.items())
    ]
    if rows or call.output.as_json:
        call.output.table(COLUMNS, rows)
    else:
        call.output.done(f"No query has claimed messages of '{live.path}'.")
