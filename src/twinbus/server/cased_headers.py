"""Request headers with the letters their sender wrote: HTTP does without, but names of message properties do not."""

from typing import cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_NAMES = "twinbus.header_names"


class CasedHttpProtocol(HttpToolsProtocol):
    """The HTTP server's protocol, which besides its lower-case headers keeps their names as they came."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        cast(Scope, self.scope)[HEADER_NAMES] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        cast(Scope, self.scope)[HEADER_NAMES].append(name)


def request_headers(scope: Scope) -> list[tuple[str, str]]:
    """Names and values as texts. A value that is not UTF-8 is taken for Latin-1, which every value is."""
    names = scope.get(HEADER_NAMES) or [name for name, _ in scope["headers"]]
    return [(name.decode("latin-1"), _text(value)) for name, (_, value) in zip(names, scope["headers"], strict=True)]


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
