"""`twinbus serve` and `twinbus up`: namespaces as processes."""

import os
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from twinbus.cli.command import DATA_DEFAULT, DataOption, JsonOption
from twinbus.cli.namespaces.running import RunningNamespace, announce, namespace_folder, withdraw
from twinbus.cli.namespaces.two_namespaces import run_two
from twinbus.cli.output import Output
from twinbus.client.connection_string import TLS_PORT
from twinbus.errors import ArgumentError
from twinbus.meter.book import EXACT_PER_SECOND_DEFAULT
from twinbus.server.server_settings import (
    AMQP_PORT_DEFAULT,
    HTTP_PORT_DEFAULT,
    LOOPBACK,
    STORE_COUNT_DEFAULT,
    STORE_COUNT_MAX,
    ServerSettings,
)

NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,49}")

NAME_HELP = "Name of the namespace; its data is kept in a folder of that name."
QueueOption = Annotated[
    list[str] | None,
    typer.Option("--queue", metavar="NAME[:partitioned]", help="Create this queue if it does not exist."),
]
EntitiesOption = Annotated[
    Path | None,
    typer.Option("--entities", metavar="FILE", help="TOML or JSON file of entities and rules to create if missing."),
]
StoresOption = Annotated[
    int, typer.Option("--stores", min=1, max=STORE_COUNT_MAX, help="Messaging stores; fixed at the first start.")
]
TlsOption = Annotated[
    bool,
    typer.Option("--tls", help="AMQP, WebSockets and HTTPS on a TLS port, with a generated development certificate."),
]
MeterOption = Annotated[
    bool, typer.Option("--meter/--no-meter", help="Log all operations, for the bill, in the data folder.")
]


def register(app: typer.Typer) -> None:
    app.command("serve")(serve)
    app.command("up")(up)


def serve(
    name: Annotated[str, typer.Argument(help=NAME_HELP)],
    data: DataOption = DATA_DEFAULT,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = LOOPBACK,
    amqp_port: Annotated[int, typer.Option("--amqp-port", help="AMQP port; 0 chooses a free one.")] = AMQP_PORT_DEFAULT,
    http_port: Annotated[int, typer.Option("--http-port", help="HTTP port; 0 chooses a free one.")] = HTTP_PORT_DEFAULT,
    stores: StoresOption = STORE_COUNT_DEFAULT,
    queue: QueueOption = None,
    entities: EntitiesOption = None,
    tls: TlsOption = False,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="PEM certificate for the TLS port.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key.")] = None,
    tls_port: Annotated[
        int | None, typer.Option("--tls-port", help=f"TLS port; turns TLS on. {TLS_PORT} if only another option does.")
    ] = None,
    allow_plain: Annotated[
        bool, typer.Option("--allow-plain", help="Listen without TLS even where other machines can connect.")
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", envvar="TWINBUS_KEY", help="Shared access key for the first start; generated if omitted."
        ),
    ] = None,
    meter: MeterOption = True,
    operations: Annotated[
        Path | None, typer.Option("--operations", metavar="DIR", help="Folder for the operations log instead.")
    ] = None,
    exact_operations: Annotated[
        int,
        typer.Option("--exact-operations", min=0, help="Operations logged individually per second; more are summed."),
    ] = EXACT_PER_SECOND_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Serve one namespace until Ctrl-C."""
    # Most other commands need neither the server and its event loop nor the reader of definition files.
    from twinbus.definitions.entity_file import read_wanted
    from twinbus.definitions.local_creation import create_entities
    from twinbus.server.namespace import NamespaceServer, new_key
    from twinbus.server.namespace import serve as serve_namespace

    _check_name(name)
    if key == "":
        raise ArgumentError("The key is empty. Omit --key and TWINBUS_KEY to have one generated.")
    wanted = read_wanted(queue or (), entities)
    folder = namespace_folder(data, name)
    if operations is not None:
        _create_folder(operations)
    settings = ServerSettings(
        name=name,
        data_folder=folder,
        host=host,
        amqp_port=amqp_port,
        http_port=http_port,
        tls_port=TLS_PORT if tls_port is None and (tls or tls_cert is not None) else tls_port,
        store_count=stores,
        tls_certificate=tls_cert,
        tls_key=tls_key,
        allow_plain=allow_plain,
        shared_access_key=key,
        is_metered=meter,
        operations_folder=operations,
        exact_operations_max=exact_operations,
    )

    async def ready(server: NamespaceServer) -> None:
        await create_entities(server.control, wanted, new_key)
        running = RunningNamespace(
            name,
            os.getpid(),
            settings.plain_host,
            server.amqp_port,
            server.http_port,
            server.connection_string,
            server.tls_port,
            server.tls_connection_string,
            str(server.tls_authority) if server.tls_authority is not None else None,
        )
        announce(folder, running)
        _print_ready(Output(as_json=as_json), running)

    try:
        serve_namespace(settings, ready)
    finally:
        withdraw(folder)


def up(
    data: DataOption = DATA_DEFAULT,
    stores: StoresOption = STORE_COUNT_DEFAULT,
    queue: QueueOption = None,
    entities: EntitiesOption = None,
    tls: TlsOption = False,
    meter: MeterOption = True,
    as_json: JsonOption = False,
) -> None:
    """Serve two namespaces, primary and secondary, a process each, until Ctrl-C."""
    from twinbus.definitions.entity_file import read_wanted

    read_wanted(queue or (), entities)
    options = ["--stores", str(stores)]
    options += [word for name in queue or () for word in ("--queue", name)]
    options += ["--entities", str(entities)] if entities is not None else []
    options += [] if meter else ["--no-meter"]
    run_two(data, options, Output(as_json=as_json), with_tls=tls)


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise ArgumentError(
            f"'{name}' is not a name for a namespace. Use up to 50 letters, digits and '-', starting with a letter."
        )


def _create_folder(operations: Path) -> None:
    """At start: a namespace goes on if its log cannot be written later, such as on a full disk."""
    try:
        operations.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise ArgumentError(
            f"The folder {operations} cannot be created: {fault.strerror}. Name another one with --operations."
        ) from None


def _print_ready(output: Output, running: RunningNamespace) -> None:
    if output.as_json:
        output.record(asdict(running))
        # The process that started this one waits for the line, and output to a pipe is buffered.
        sys.stdout.flush()
        return
    output.record({"namespace": running.name, "administration": running.endpoint})
    for line in running.ways_in:
        output.console.print(line, markup=False)
