"""Errors that cross a line: class by name, and text. What the other side does not know arrives as an InternalError."""

from collections.abc import Iterator

from twinbus.errors import InternalError, MessagingError


def _family(kind: type[MessagingError]) -> Iterator[type[MessagingError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == MessagingError.__module__:
            yield from _family(child)


KINDS = {kind.__name__: kind for kind in _family(MessagingError)}


def encode_error(error: MessagingError) -> bytes:
    kind = next(each for each in type(error).__mro__ if KINDS.get(each.__name__) is each)
    return f"{kind.__name__}\n{error}".encode("utf-8", "replace")


def decode_error(data: bytes) -> MessagingError:
    name, _, text = data.decode("utf-8", "replace").partition("\n")
    return KINDS.get(name, InternalError)(text)
