"""Commands against a namespace, and the options that all of them have.

A command is a function whose first parameter is a `Call`. `command` adds it to a group with its own parameters and
those that choose the namespace, and passes it the call.
"""

import inspect
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.namespaces.running import authority_of, find_running, namespace_folder
from twinbus.cli.output import Output
from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.client.connecting.dialling import http_address
from twinbus.client.connecting.trust import CA_FILE_VARIABLE, stock_client_options, tls_context
from twinbus.errors import ArgumentError

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusClient
    from azure.servicebus.management import ServiceBusAdministrationClient

    from twinbus.client.blocking import BlockingNamespace

DATA_DEFAULT = Path("twinbus-data")
NAMESPACE_DEFAULT = "primary"
WHICH_NAMESPACE = "Which namespace"
"""Heading of the options below on help pages."""
RETRY_BACKOFF_S = 0.1
ANSWER_WAIT_S = 60.0
"""How long the official clients wait for an answer. By themselves they would wait for many minutes, or forever."""
OPEN_WAIT_S = 10.0

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
DataOption = Annotated[
    Path,
    typer.Option("--data", metavar="DIR", envvar="TWINBUS_DATA", help="Folder with the namespaces' data."),
]
NamespaceOption = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        envvar="TWINBUS_NAMESPACE",
        help="A namespace that runs on this machine.",
        rich_help_panel=WHICH_NAMESPACE,
    ),
]
ConnectionStringOption = Annotated[
    str | None,
    typer.Option(
        "--connection-string",
        envvar="TWINBUS_CONNECTION_STRING",
        help="Any namespace. Commands for messages and entities also work in Azure.",
        rich_help_panel=WHICH_NAMESPACE,
    ),
]
EndpointOption = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="URL",
        help="With --connection-string: the HTTP address, if it is on another port.",
        rich_help_panel=WHICH_NAMESPACE,
    ),
]


def _trust(file: Path | None) -> Path | None:
    if file is not None:
        # Processes that the command starts, also those of Spark, read it there.
        os.environ[CA_FILE_VARIABLE] = str(file)
    return file


CaFileOption = Annotated[
    Path | None,
    typer.Option(
        "--ca-file",
        metavar="FILE",
        envvar=CA_FILE_VARIABLE,
        help="PEM file of an authority to trust over TLS, in addition to those of the system.",
        rich_help_panel=WHICH_NAMESPACE,
        callback=_trust,
    ),
]


@dataclass
class Call:
    """One invocation of a command."""

    output: Output
    namespace: str
    data: Path
    given_connection_string: str | None
    given_endpoint: str | None
    ca_file: Path | None = None

    @classmethod
    def to(cls, namespace: str, endpoint: str | None, data: Path, output: Output) -> "Call":
        """Where one option takes both: a connection string contains '=', and the name of a namespace cannot."""
        return cls(output, namespace, data, namespace if "=" in namespace else None, endpoint)

    @property
    def folder(self) -> Path:
        """Of a namespace on this machine, whether it runs or not. Raises ArgumentError for a backup."""
        if self.given_connection_string is not None:
            raise ArgumentError(
                "This command works on a namespace's files. Name a namespace on this machine with --namespace."
            )
        from twinbus.server.data.data_folder import require_no_backup

        folder = namespace_folder(self.data, self.namespace)
        require_no_backup(folder)
        return folder

    @cached_property
    def connection_string(self) -> str:
        if self.given_connection_string is not None:
            return self.given_connection_string
        return find_running(self.data, self.namespace).local_connection_string

    @cached_property
    def authorities(self) -> list[Path]:
        """Files to trust over TLS: the one that was named, and that of a namespace on this machine."""
        own = authority_of(self.data, parse_connection_string(self.connection_string))
        return [file for file in (self.ca_file, own) if file is not None]

    @cached_property
    def endpoint(self) -> str | None:
        """The HTTP address; None if the official client finds it by itself."""
        if self.given_endpoint is not None:
            http_address(self.given_endpoint)
            return self.given_endpoint
        if self.given_connection_string is None:
            return find_running(self.data, self.namespace).endpoint
        from twinbus.client.administration import administration_endpoint

        parsed = parse_connection_string(self.given_connection_string)
        return None if parsed.uses_tls else administration_endpoint(parsed)

    @property
    def label(self) -> str:
        """How sentences call the namespace."""
        if self.given_connection_string is None:
            return self.namespace
        return parse_connection_string(self.given_connection_string).authority

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The JSON that a page of twinbus's own answers. Raises NamespaceRefused if it refuses or is not there."""
        from twinbus.client import namespace_http

        endpoint = self.endpoint or namespace_http.endpoint_of(parse_connection_string(self.connection_string))
        return namespace_http.ask(self.connection_string, endpoint, method, path, body, self.authorities)

    def administration(self) -> "ServiceBusAdministrationClient":
        from twinbus.client.administration import administration_client

        # A person waits for the answer and can try again. The first retry is the only one without a pause before it.
        return administration_client(
            self.connection_string,
            self.endpoint,
            connect_retries=1,
            authorities=self.authorities,
            answer_wait_s=ANSWER_WAIT_S,
        )

    def client(self) -> "ServiceBusClient":
        from azure.servicebus import ServiceBusClient

        self._require_answer()
        options = stock_client_options(parse_connection_string(self.connection_string), self.authorities)
        # As above.
        return ServiceBusClient.from_connection_string(
            self.connection_string,
            retry_total=1,
            retry_backoff_factor=RETRY_BACKOFF_S,
            try_timeout=ANSWER_WAIT_S,
            **options,
        )

    def _require_answer(self) -> None:
        """Raises OperationTimeout if the namespace is suspended: nothing ends the official client's wait for its first bytes."""
        from twinbus.client.blocking import BlockingNamespace
        from twinbus.client.remote_errors import ConnectionLost, PeerNotTrusted

        # About anything else that is wrong, the official client says more.
        with suppress(ConnectionLost, PeerNotTrusted):
            BlockingNamespace.connect(
                self.connection_string, tls=tls_context(self.authorities), timeout_s=OPEN_WAIT_S
            ).close()

    def blocking(self) -> "BlockingNamespace":
        """The client of our own, for what the official one cannot do."""
        from twinbus.client.blocking import BlockingNamespace

        return BlockingNamespace.connect(self.connection_string, tls=tls_context(self.authorities))


SHARED = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
    for name, annotation, default in (
        ("namespace", NamespaceOption, NAMESPACE_DEFAULT),
        ("data", DataOption, DATA_DEFAULT),
        ("connection_string", ConnectionStringOption, None),
        ("endpoint", EndpointOption, None),
        ("ca_file", CaFileOption, None),
        ("as_json", JsonOption, False),
    )
]


def command(
    group: typer.Typer, name: str, parameters: Sequence[inspect.Parameter] | None = None, help_text: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function of a `Call` and its own parameters as a command.

    The parameters are those of the function, or those given for a function that takes any.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def run(
            *args: Any,
            namespace: str,
            data: Path,
            connection_string: str | None,
            endpoint: str | None,
            ca_file: Path | None,
            as_json: bool,
            **kwargs: Any,
        ) -> None:
            call = Call(Output(as_json=as_json), namespace, data, connection_string, endpoint, ca_file)
            function(call, *args, **kwargs)

        own = list(inspect.signature(function).parameters.values())[1:] if parameters is None else parameters
        positional = [each for each in own if each.kind is not inspect.Parameter.KEYWORD_ONLY]
        named = [each for each in own if each.kind is inspect.Parameter.KEYWORD_ONLY]
        run.__signature__ = inspect.Signature([*positional, *named, *SHARED])  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in (*own, *SHARED)}
        group.command(name, help=help_text)(run)
        return function

    return register
