"""`twinbus token`: a shared access signature, for programs that have no SDK."""

import time
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated

import typer

from twinbus.cli.command import Call, command
from twinbus.cli.namespaces.access import rule_named
from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.client.connecting.token_sources import sign
from twinbus.errors import ArgumentError
from twinbus.model.descriptions import WhichKey
from twinbus.model.durations import parse_duration

KIND = "SharedAccessSignature "
LIFE_DEFAULT = timedelta(hours=1)
LIFE_MAX = timedelta(days=3650)


class TokenFormat(Enum):
    TOKEN = "token"
    HEADER = "header"
    CREDENTIALS = "credentials"


def register(app: typer.Typer) -> None:
    command(app, "token")(token)


def token(
    call: Call,
    entity: Annotated[
        str | None, typer.Argument(help="A queue or topic that the token is for; the whole namespace if omitted.")
    ] = None,
    *,
    rule: Annotated[
        str | None,
        typer.Option("--rule", help="Access rule whose key signs; that of the connection string if omitted."),
    ] = None,
    of_entity: Annotated[bool, typer.Option("--of-entity", help="The access rule is one of the entity.")] = False,
    key: Annotated[WhichKey, typer.Option("--key", help="With --rule: which of its two keys.")] = WhichKey.PRIMARY,
    life: Annotated[
        timedelta | None,
        typer.Option(
            "--ttl", parser=parse_duration, metavar="DURATION", help="How long the token is valid; 1h if omitted."
        ),
    ] = None,
    shape: Annotated[
        TokenFormat,
        typer.Option("--format", help="The token, a whole header for curl, or the credentials for Prometheus."),
    ] = TokenFormat.TOKEN,
) -> None:
    """Print a shared access signature for requests over HTTP."""
    life = LIFE_DEFAULT if life is None else life
    if not timedelta(seconds=1) <= life <= LIFE_MAX:
        raise ArgumentError("--ttl: a token can be valid for 1s to 3650d.")
    if of_entity and (rule is None or entity is None):
        raise ArgumentError("--of-entity needs an entity and --rule.")
    parsed = parse_connection_string(call.connection_string)
    name, secret = parsed.key_name, parsed.key
    if rule is not None:
        found = rule_named(call, rule, entity if of_entity else None)
        name, secret = rule, found[f"{key.value}_key"]
    if not secret:
        raise ArgumentError("There is no such key to sign with. Choose an access rule that has one with --rule.")
    resource = f"sb://{parsed.host}" + (f"/{entity}" if entity else "")
    expires_at_s = int(time.time() + life.total_seconds())
    signed = sign(resource, name, secret, expires_at_s)
    texts = {
        TokenFormat.TOKEN: signed,
        TokenFormat.HEADER: f"Authorization: {signed}",
        TokenFormat.CREDENTIALS: signed.removeprefix(KIND),
    }
    if call.output.as_json:
        until = datetime.fromtimestamp(expires_at_s, UTC)
        call.output.record({"token": signed, "resource": resource, "rule": name, "expires_at": until})
    else:
        print(texts[shape])
