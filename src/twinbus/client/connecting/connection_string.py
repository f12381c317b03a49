"""Connection strings: the one line of text in, a value with everything a client needs out.

`Endpoint=sb://HOST[:PORT];SharedAccessKeyName=N;SharedAccessKey=K;[EntityPath=P;][UseDevelopmentEmulator=true]`

These are the connection strings of the official SDKs, with the same rules: the emulator flag means plain TCP and keeps the port;
without it the connection uses TLS. Unlike in the Python SDK, a port is kept with TLS too. With a credential, the endpoint is enough.
"""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from twinbus.errors import ArgumentError

PLAIN_PORT = 5672
TLS_PORT = 5671
HTTPS_PORT = 443


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """The address of a namespace and the key or signature for it."""

    host: str
    port: int
    uses_tls: bool
    key_name: str = ""
    key: str = field(default="", repr=False)  # secrets stay out of logs and tracebacks
    signature: str = field(default="", repr=False)
    entity_path: str | None = None
    is_port_given: bool = False

    @property
    def authority(self) -> str:
        """Host and port as audiences name them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.port not in (PLAIN_PORT, TLS_PORT, HTTPS_PORT) else host

    @property
    def http_port(self) -> int:
        """The port for HTTP and WebSockets: that of AMQP, because twinbus serves all of them there.

        Only a connection string for TLS that names no port means 443, as in Azure.
        """
        return self.port if self.is_port_given or not self.uses_tls else HTTPS_PORT


def parse_connection_string(text: str, *, needs_key: bool = True) -> ConnectionString:
    parts = _fields(text)
    try:
        endpoint = urlsplit(parts.get("endpoint", ""))
    except ValueError as error:
        raise ArgumentError(f"The Endpoint of the connection string has no valid host: {error}.") from None
    try:
        host, port = endpoint.hostname, endpoint.port
    except ValueError as error:
        raise ArgumentError(f"The Endpoint of the connection string has no valid port: {error}.") from None
    if endpoint.scheme != "sb" or not host:
        raise ArgumentError("The connection string needs Endpoint=sb://HOST[:PORT].")
    is_emulator = parts.get("usedevelopmentemulator") == "true"
    key_name, key = parts.get("sharedaccesskeyname", ""), parts.get("sharedaccesskey", "")
    signature = parts.get("sharedaccesssignature", "")
    if needs_key and not signature and not (key_name and key):
        raise ArgumentError(
            "The connection string needs SharedAccessKeyName and SharedAccessKey, or a SharedAccessSignature."
        )
    return ConnectionString(
        host=host,
        port=port or (PLAIN_PORT if is_emulator else TLS_PORT),
        uses_tls=not is_emulator,
        key_name=key_name,
        key=key,
        signature=signature,
        entity_path=parts.get("entitypath") or None,
        is_port_given=port is not None,
    )


def with_key(text: str, key_name: str, key: str, entity_path: str | None) -> str:
    """The same namespace with another key, for all of it or for one entity."""
    ours = ("sharedaccesskeyname", "sharedaccesskey", "sharedaccesssignature", "entitypath")
    items = [item.strip() for item in text.split(";") if item.strip()]
    kept = [item for item in items if item.partition("=")[0].strip().lower() not in ours]
    endpoint = [item for item in kept if item.lower().startswith("endpoint=")]
    entity = [f"EntityPath={entity_path}"] if entity_path else []
    others = [item for item in kept if item not in endpoint]
    return ";".join([*endpoint, f"SharedAccessKeyName={key_name}", f"SharedAccessKey={key}", *others, *entity])


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for item in text.strip().split(";"):
        if not item.strip():
            continue
        name, separator, value = item.partition("=")
        if not separator:
            raise ArgumentError("Each part of a connection string must be Name=Value; one has no '='.")
        fields[name.strip().lower()] = value.strip()
    return fields
