"""`twinbus serve` and `twinbus up`: namespaces as processes."""

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from twinbus.cli.command import DATA_DEFAULT, DataOption, JsonOption
from twinbus.cli.namespaces.configuration import KEY_VARIABLE, ConfigOption, ConfiguredCommand
from twinbus.cli.namespaces.running import RunningNamespace, announce, namespace_folder, withdraw
from twinbus.cli.namespaces.store_option import StoreOption, read_dsns
from twinbus.cli.namespaces.two_namespaces import PrimaryPorts, run_two
from twinbus.cli.output import Output
from twinbus.client.connecting.connection_string import TLS_PORT
from twinbus.errors import ArgumentError
from twinbus.meter.book import EXACT_PER_SECOND_DEFAULT
from twinbus.portal.settings import PORT_DEFAULT as PORTAL_PORT_DEFAULT
from twinbus.server.server_settings import (
    AMQP_PORT_DEFAULT,
    HTTP_PORT_DEFAULT,
    LOOPBACK,
    PROCESSES_MAX,
    STORE_COUNT_DEFAULT,
    STORE_COUNT_MAX,
    LogFormat,
    LogLevel,
    ServerSettings,
    read_extra_ports,
)

PORT_MAX = 65_535
NAME_HELP = "Name of the namespace; its data is kept in a folder of that name."
QueueOption = Annotated[
    list[str] | None,
    typer.Option("--queue", metavar="NAME[:partitioned]", help="Create this queue if it does not exist."),
]
EntitiesOption = Annotated[
    Path | None,
    typer.Option("--entities", metavar="FILE", help="TOML or JSON file of entities and rules to create if missing."),
]
ProcessesOption = Annotated[
    int,
    typer.Option(
        "--processes",
        min=1,
        max=PROCESSES_MAX,
        help="Processes that share the messaging stores. On two cores 1 is best; with more, try one per two cores.",
    ),
]
NodeOption = Annotated[
    str | None,
    typer.Option(
        "--node",
        metavar="NAME",
        help="Serve, under this name, as one of several machines that share the stores of --store; needs --listen-nodes.",
    ),
]
ListenNodesOption = Annotated[
    str | None,
    typer.Option(
        "--listen-nodes",
        metavar="HOST:PORT",
        help="Address on which to listen for the other nodes; port 0 chooses a free one.",
    ),
]
AdvertiseNodesOption = Annotated[
    str | None,
    typer.Option(
        "--advertise-nodes",
        metavar="HOST:PORT",
        help="Address at which the other nodes reach this one, if it is not that of --listen-nodes.",
    ),
]
StoresOption = Annotated[
    int, typer.Option("--stores", min=1, max=STORE_COUNT_MAX, help="Messaging stores; fixed at the first start.")
]
TlsOption = Annotated[
    bool,
    typer.Option("--tls", help="AMQP, WebSockets and HTTPS on a TLS port, with a generated development certificate."),
]
AmqpPortOption = Annotated[
    int,
    typer.Option("--amqp-port", min=0, max=PORT_MAX, help="Port for AMQP, WebSockets and HTTP; 0 chooses a free one."),
]
HttpPortOption = Annotated[
    int,
    typer.Option(
        "--http-port",
        min=0,
        max=PORT_MAX,
        help="Another port, only for HTTP and WebSockets; 0 chooses a free one.",
    ),
]
AlsoListenOption = Annotated[
    str,
    typer.Option(
        "--also-listen",
        metavar="PORTS",
        help="More ports, such as 80,443. 443 and 5671 require TLS; to choose, write PORT/tls or PORT/plain.",
    ),
]
AdvertiseOption = Annotated[
    str | None,
    typer.Option("--advertise", metavar="HOST", help="Host name for connection strings and for the certificate."),
]
TlsNameOption = Annotated[
    list[str] | None,
    typer.Option("--tls-name", metavar="NAME", help="Add a name to the generated certificate; *.NAME is possible."),
]
TrustOption = Annotated[
    Path | None,
    typer.Option(
        "--trust", metavar="FILE", help="TOML or JSON file of issuers whose JSON web tokens (Entra ID) are accepted."
    ),
]
MeterOption = Annotated[
    bool, typer.Option("--meter/--no-meter", help="Log all operations, for the bill, in the data folder.")
]


HostOption = Annotated[str, typer.Option("--host", help="Address to listen on.")]
AllowPlainOption = Annotated[
    bool, typer.Option("--allow-plain", help="Listen without TLS even on addresses that other machines can reach.")
]
KeyOption = Annotated[
    str | None,
    typer.Option("--key", envvar=KEY_VARIABLE, help="Shared access key for the first start; generated if omitted."),
]
LogLevelOption = Annotated[LogLevel, typer.Option("--log-level", help="Log events of this level and above.")]
LogFormatOption = Annotated[LogFormat, typer.Option("--log-format", help="Format of log lines.")]


def register(app: typer.Typer) -> None:
    app.command("serve", cls=ConfiguredCommand)(serve)
    app.command("up", cls=ConfiguredCommand)(up)


def serve(
    name: Annotated[str, typer.Argument(help=NAME_HELP, envvar="TWINBUS_NAMESPACE")],
    data: DataOption = DATA_DEFAULT,
    config: ConfigOption = None,
    host: HostOption = LOOPBACK,
    advertise: AdvertiseOption = None,
    amqp_port: AmqpPortOption = AMQP_PORT_DEFAULT,
    http_port: HttpPortOption = HTTP_PORT_DEFAULT,
    also_listen: AlsoListenOption = "",
    stores: StoresOption = STORE_COUNT_DEFAULT,
    store: StoreOption = None,
    node: NodeOption = None,
    listen_nodes: ListenNodesOption = None,
    advertise_nodes: AdvertiseNodesOption = None,
    processes: ProcessesOption = 1,
    queue: QueueOption = None,
    entities: EntitiesOption = None,
    tls: TlsOption = False,
    tls_name: TlsNameOption = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="PEM certificate for the TLS port.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key.")] = None,
    tls_port: Annotated[
        int | None,
        typer.Option(
            "--tls-port",
            min=0,
            max=PORT_MAX,
            help=f"TLS port; turns TLS on. {TLS_PORT} if only another option does.",
        ),
    ] = None,
    allow_plain: AllowPlainOption = False,
    key: KeyOption = None,
    trust: TrustOption = None,
    meter: MeterOption = True,
    operations: Annotated[
        Path | None,
        typer.Option("--operations", metavar="DIR", help="Folder for the operations log, instead of the data folder."),
    ] = None,
    exact_operations: Annotated[
        int,
        typer.Option("--exact-operations", min=0, help="Operations logged individually per second; more are summed."),
    ] = EXACT_PER_SECOND_DEFAULT,
    log_level: LogLevelOption = LogLevel.INFO,
    log_format: LogFormatOption = LogFormat.LOGFMT,
    as_json: JsonOption = False,
) -> None:
    """Serve one namespace until Ctrl-C.

    With --store, a second process with the same command waits as a spare and takes over when the first one ends. With --node
    as well, all of them serve: each has some of the stores, and takes over those of a node that ends.
    """
    # Most other commands need neither the server and its event loop nor the reader of definition files.
    from twinbus.definitions.entity_file import read_wanted
    from twinbus.definitions.local_creation import create_entities
    from twinbus.definitions.trust_file import read_trust
    from twinbus.server.data.holdings import new_key
    from twinbus.server.listening.host_names import reachable_host
    from twinbus.server.namespace import NamespaceServer
    from twinbus.server.nodes.supervisor import Supervisor, serve_in_processes
    from twinbus.server.serving import serve as serve_namespace

    _check_key(key)
    _check_processes(processes, stores, is_in_database=bool(store))
    wanted = read_wanted(queue or (), entities)
    extra_ports = read_extra_ports(also_listen)
    # A port for TLS among these is enough: no other one is opened that nobody asked for.
    brings_tls = any(each.uses_tls for each in extra_ports)
    folder = namespace_folder(data, name)
    if operations is not None:
        _create_folder(operations)
    settings = ServerSettings(
        name=name,
        data_folder=folder,
        host=host,
        advertised_host=advertise,
        amqp_port=amqp_port,
        http_port=http_port,
        tls_port=tls_port if tls_port is not None or not (tls or (tls_cert and not brings_tls)) else TLS_PORT,
        also_listen=extra_ports,
        tls_names=tuple(tls_name or ()),
        store_count=stores,
        store_dsns=read_dsns(store or ()),
        node_name=node,
        listen_nodes=listen_nodes,
        advertise_nodes=advertise_nodes,
        tls_certificate=tls_cert,
        tls_key=tls_key,
        allow_plain=allow_plain,
        shared_access_key=key,
        trusted_issuers=read_trust(trust),
        is_metered=meter,
        operations_folder=operations,
        exact_operations_max=exact_operations,
        log_level=log_level,
        log_format=log_format,
    )

    async def prepare(server: NamespaceServer) -> None:
        await create_entities(server.control, wanted, new_key)

    def running_now(server: NamespaceServer | Supervisor) -> RunningNamespace:
        return RunningNamespace(
            name,
            os.getpid(),
            reachable_host(settings.plain_host),
            server.amqp_port,
            server.http_port,
            server.connection_string,
            server.tls_port,
            server.tls_connection_string,
            str(server.tls_authority.resolve()) if server.tls_authority is not None else None,
            list(map(str, extra_ports)),
        )

    is_announced = False

    def ready(server: NamespaceServer | Supervisor) -> None:
        nonlocal is_announced
        is_announced = True
        server.on_new_root_key = lambda: announce(folder, running_now(server))
        running = running_now(server)
        announce(folder, running)
        _print_ready(Output(as_json=as_json), running)

    try:
        if processes > 1:
            serve_in_processes(settings, processes, wanted, ready)
        else:
            serve_namespace(settings, ready, prepare)
    finally:
        if is_announced:  # else it may be that of a process in another container, where every one has the same number
            withdraw(folder)


def up(
    data: DataOption = DATA_DEFAULT,
    config: ConfigOption = None,
    host: HostOption = LOOPBACK,
    advertise: AdvertiseOption = None,
    amqp_port: Annotated[
        int,
        typer.Option(
            "--amqp-port",
            min=0,
            max=PORT_MAX,
            help="AMQP port of the primary; the secondary has the next one.",
        ),
    ] = AMQP_PORT_DEFAULT,
    http_port: Annotated[
        int,
        typer.Option(
            "--http-port",
            min=0,
            max=PORT_MAX,
            help="HTTP port of the primary; the secondary has the next one.",
        ),
    ] = HTTP_PORT_DEFAULT,
    also_listen: AlsoListenOption = "",
    stores: StoresOption = STORE_COUNT_DEFAULT,
    queue: QueueOption = None,
    entities: EntitiesOption = None,
    tls: TlsOption = False,
    tls_name: TlsNameOption = None,
    tls_port: Annotated[
        int | None,
        typer.Option(
            "--tls-port",
            min=0,
            max=PORT_MAX,
            help=f"TLS port of the primary, {TLS_PORT} with --tls; the secondary's is 3 higher.",
        ),
    ] = None,
    allow_plain: AllowPlainOption = False,
    key: KeyOption = None,
    trust: TrustOption = None,
    meter: MeterOption = True,
    log_level: LogLevelOption = LogLevel.INFO,
    log_format: LogFormatOption = LogFormat.LOGFMT,
    portal: Annotated[bool, typer.Option("--portal/--no-portal", help="Also serve the portal, for browsers.")] = True,
    portal_port: Annotated[
        int,
        typer.Option("--portal-port", min=0, max=PORT_MAX, help="Port of the portal; a free one if it is in use or 0."),
    ] = PORTAL_PORT_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Serve two namespaces, primary and secondary, each in its own process, until Ctrl-C. --also-listen applies to the primary."""
    from twinbus.definitions.entity_file import read_wanted
    from twinbus.definitions.trust_file import read_trust

    read_wanted(queue or (), entities)
    read_trust(trust)
    ports = PrimaryPorts(amqp_port, http_port, tls_port if tls_port is not None or not tls else TLS_PORT, also_listen)
    ports.check()
    _check_key(key)
    options = [
        "--stores",
        str(stores),
        "--host",
        host,
        "--log-level",
        log_level.value,
        "--log-format",
        log_format.value,
    ]
    options += ["--allow-plain"] if allow_plain else []
    options += [word for name in queue or () for word in ("--queue", name)]
    options += [word for name in tls_name or () for word in ("--tls-name", name)]
    options += ["--entities", str(entities)] if entities is not None else []
    options += ["--trust", str(trust)] if trust is not None else []
    options += ["--advertise", advertise] if advertise is not None else []
    options += [] if meter else ["--no-meter"]
    # A key is not given as an option, which other users of the machine could see.
    secrets = {} if key is None else {KEY_VARIABLE: key}
    run_two(data, options, Output(as_json=as_json), ports, portal_port if portal else None, secrets)


def _check_processes(count: int, store_count: int, *, is_in_database: bool) -> None:
    if count > 1 and is_in_database:
        raise ArgumentError("Stores in PostgreSQL are served by one process. Omit --processes, or --store.")
    if count > store_count:
        raise ArgumentError(
            f"{count} processes cannot share {store_count} messaging stores: each needs one. Use --processes {store_count}."
        )


def _check_key(key: str | None) -> None:
    if key == "":
        raise ArgumentError(f"The key is empty. Omit --key and {KEY_VARIABLE} to generate one.")


def _create_folder(operations: Path) -> None:
    """At start: a namespace goes on if its log cannot be written later, such as on a full disk."""
    try:
        operations.mkdir(0o750, parents=True, exist_ok=True)
    except OSError as fault:
        raise ArgumentError(
            f"The folder {operations} cannot be created: {fault.strerror}. Choose another one with --operations."
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
