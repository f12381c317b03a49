"""Request headers in the case their sender wrote: HTTP ignores it, but names of message properties have one."""

from typing import cast

from starlette.types import Scope

from twinbus.bounded_http import BoundedHttpProtocol

HEADER_NAMES = "twinbus.header_names"


class CasedHttpProtocol(BoundedHttpProtocol):
    """The HTTP server's protocol, which keeps the names of headers as they came beside its lower-case ones."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        cast(Scope, self.scope)[HEADER_NAMES] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers are not headers (RFC 9110, section 6.5.1): what follows a body gives no right and no property.
        if not self.has_headers:
            super().on_header(name, value)
            cast(Scope, self.scope)[HEADER_NAMES].append(name)


def request_headers(scope: Scope) -> list[tuple[str, str]]:
    """Names and values as strings. A value that is not UTF-8 is read as Latin-1, which any bytes are."""
    names = scope.get(HEADER_NAMES) or [name for name, _ in scope["headers"]]
    return [(name.decode("latin-1"), _text(value)) for name, (_, value) in zip(names, scope["headers"], strict=True)]


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
