"""Where a namespace is and which credentials it needs, as options of a source or sink: options in, a value out.

| option | meaning |
|---|---|
| `connectionString` | the connection string |
| `connectionStringEnv` | the environment variable that holds it, looked up by each process that connects |
| `connectionStringFile` | the file that holds it, read by each process that connects |
| `namespace`, `sharedAccessKeyName`, `sharedAccessKey` | its parts: HOST[:PORT], always over TLS |
| `credential` | with `namespace`, instead of a key: `default` gets tokens from the DefaultAzureCredential of azure-identity, which must be installed wherever a process connects; for Azure only, because twinbus accepts only keys |
| `transport` | `amqp`, or `ws` for AMQP over WebSockets: on the port given with the host, or 443 (`amqp`) |
| `retryTotal` | how often to retry an operation that may succeed later (3) |
| `operationTimeout` | how many seconds a namespace may take to answer (60) |

Exactly one of the first four says where the namespace is. The names are not case-sensitive, as always in Spark. Secrets
travel to the workers in the pickled value, as the options themselves do, and never appear in its text.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.client.connecting.dialling import Transport
from twinbus.client.connecting.token_sources import TokenCredential
from twinbus.errors import ArgumentError

if TYPE_CHECKING:
    from twinbus.client.namespace import Namespace
from functools import cache
from importlib import import_module
from typing import cast

CONNECTION_STRING = "connectionString"
CONNECTION_STRING_ENV = "connectionStringEnv"
CONNECTION_STRING_FILE = "connectionStringFile"
NAMESPACE = "namespace"
KEY_NAME = "sharedAccessKeyName"
KEY = "sharedAccessKey"
CREDENTIAL = "credential"
TRANSPORT = "transport"
RETRY_TOTAL = "retryTotal"
OPERATION_TIMEOUT = "operationTimeout"

PLACES = (CONNECTION_STRING, CONNECTION_STRING_ENV, CONNECTION_STRING_FILE, NAMESPACE)
_WANTED = {
    CONNECTION_STRING_ENV: "the name of an environment variable",
    CONNECTION_STRING_FILE: "the path of a file",
    NAMESPACE: "HOST[:PORT]",
}
CONNECTION_OPTIONS = (*PLACES, KEY_NAME, KEY, CREDENTIAL, TRANSPORT, RETRY_TOTAL, OPERATION_TIMEOUT)
"""Every option that this module reads; sources and sinks know the others."""

DEFAULT_CREDENTIAL = "default"
RETRY_TOTAL_DEFAULT = 3
RETRY_TOTAL_MAX = 100
OPERATION_TIMEOUT_S_DEFAULT = 60.0
OPERATION_TIMEOUT_S_MAX = 3_600.0


_SECRET = re.compile(r"(SharedAccess(?:Key|Signature)\s*=\s*)[^;'\"]+", re.IGNORECASE)
_IS_CONNECTION_STRING = re.compile(r"Endpoint\s*=|SharedAccess\w*\s*=", re.IGNORECASE)


class OptionError(ArgumentError, ValueError):
    """An option of a source or sink is missing, unknown or has a value that makes no sense. One line says which.

    Error texts quote the value, and it is easy to pass a connection string to the wrong option, so its key is removed.
    """

    def __init__(self, text: str) -> None:
        super().__init__(_SECRET.sub(r"\1…", text))


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """`place` is the option that says where the namespace is, `given` its value."""

    place: str
    given: str = field(repr=False)
    key_name: str = ""
    key: str = field(default="", repr=False)
    retry_total: int = RETRY_TOTAL_DEFAULT
    operation_timeout_s: float = OPERATION_TIMEOUT_S_DEFAULT
    transport: Transport = Transport.AMQP
    uses_credential: bool = False

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "ConnectionOptions":
        """Options of other kinds are left alone. Raises OptionError.

        What can be checked without the secret is checked here, so that it fails where the query is planned.
        """
        wanted = {name.lower(): name for name in CONNECTION_OPTIONS}
        known = {wanted[name.lower()]: value.strip() for name, value in options.items() if name.lower() in wanted}
        place = _only_place(known)
        if place != CONNECTION_STRING and _IS_CONNECTION_STRING.search(known[place]):
            raise OptionError(
                f"{place} is {_WANTED[place]}, but has a connection string: use {CONNECTION_STRING} for that."
            )
        _check_proof(known, place)
        made = cls(
            place,
            known[place],
            known.get(KEY_NAME, ""),
            known.get(KEY, ""),
            int(_number(known, RETRY_TOTAL, RETRY_TOTAL_DEFAULT, RETRY_TOTAL_MAX)),
            _number(known, OPERATION_TIMEOUT, OPERATION_TIMEOUT_S_DEFAULT, OPERATION_TIMEOUT_S_MAX),
            _transport(known),
            bool(known.get(CREDENTIAL)),
        )
        if place in (CONNECTION_STRING, NAMESPACE):
            made.resolve()
        return made

    def resolve(self) -> str:
        """The connection string, in the process that is about to connect; without a key where that is a credential's part.

        Raises OptionError.
        """
        text = self._text()
        try:
            parse_connection_string(text, needs_key=not self.uses_credential)
        except ArgumentError as wrong:
            raise OptionError(f"{self.place}: {wrong}") from None
        return text

    async def connect(self, *, timeout_s: float | None = None) -> "Namespace":
        """`timeout_s` instead of that of the options. Raises OptionError, ConnectionLost, and so on."""
        from twinbus.client.namespace import Namespace

        return await Namespace.connect(
            self.resolve(),
            credential=_default_credential() if self.uses_credential else None,
            transport=self.transport,
            timeout_s=self.operation_timeout_s if timeout_s is None else timeout_s,
        )

    def _text(self) -> str:
        match self.place:
            case "connectionStringEnv":
                return _of_environment(self.given)
            case "connectionStringFile":
                return _of_file(self.given)
            case "namespace" if self.uses_credential:
                return f"Endpoint=sb://{self.given}/"
            case "namespace":
                return f"Endpoint=sb://{self.given}/;SharedAccessKeyName={self.key_name};SharedAccessKey={self.key}"
            case _:
                return self.given


def _only_place(known: Mapping[str, str]) -> str:
    places = [name for name in PLACES if known.get(name)]
    if len(places) == 1:
        return places[0]
    if not places:
        raise OptionError(f"No option says where the namespace is. Set one of {', '.join(PLACES)}.")
    raise OptionError(f"{' and '.join(places)} both say where the namespace is. Set one of them.")


def _check_proof(known: Mapping[str, str], place: str) -> None:
    keys, credential = [name for name in (KEY_NAME, KEY) if known.get(name)], known.get(CREDENTIAL)
    given = [*keys, *([CREDENTIAL] if credential else ())]
    if place != NAMESPACE and given:
        raise OptionError(f"{given[0]} goes with {NAMESPACE}, not with {place}, which has its own.")
    if credential and keys:
        raise OptionError(f"{CREDENTIAL} replaces {keys[0]}. Set one of them.")
    if credential and credential.lower() != DEFAULT_CREDENTIAL:
        # What was given may be a secret by mistake.
        raise OptionError(f"{CREDENTIAL} has an unknown value; it must be {DEFAULT_CREDENTIAL}.")
    if place == NAMESPACE and not credential and len(keys) < 2:
        raise OptionError(f"{NAMESPACE} also needs {KEY_NAME} and {KEY}, or {CREDENTIAL}.")


def _transport(known: Mapping[str, str]) -> Transport:
    text = known.get(TRANSPORT) or Transport.AMQP
    try:
        return Transport(text.lower())
    except ValueError:
        raise OptionError(f"{TRANSPORT} is '{text}'; it must be {' or '.join(Transport)}.") from None


def _default_credential() -> TokenCredential:
    try:
        return default_credential()
    except ImportError:
        raise OptionError(
            f"{CREDENTIAL}: this process has no azure-identity. Install it on every node: pip install azure-identity."
        ) from None


def _number(known: Mapping[str, str], name: str, default: float, most: float) -> float:
    text = known.get(name)
    if text is None:
        return default
    try:
        number = float(text) if name == OPERATION_TIMEOUT else int(text)
    except ValueError:
        number = -1
    least = 0.001 if name == OPERATION_TIMEOUT else 0
    if not least <= number <= most:
        raise OptionError(f"{name} is '{text}'; it must be a number from {least:g} to {most:g}.")
    return number


def _of_environment(variable: str) -> str:
    text = os.environ.get(variable, "")
    if not text:
        raise OptionError(
            f"{CONNECTION_STRING_ENV}: the environment of this process has no {variable}. Set it on every node, with"
            f" spark.executorEnv.{variable} for executors."
        )
    return text


def _of_file(name: str) -> str:
    try:
        return Path(name).read_text().strip()
    except OSError as fault:
        raise OptionError(f"{CONNECTION_STRING_FILE}: {name} cannot be read here: {fault.strerror}.") from None


@cache
def default_credential() -> TokenCredential:
    """One for the process, which keeps its tokens: an authority is asked once for all connections. Raises ImportError."""
    return cast(TokenCredential, import_module("azure.identity").DefaultAzureCredential())
