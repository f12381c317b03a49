"""Errors that cross a line: class by name, a number that belongs to it, and text. What the other side does not know arrives as an
InternalError."""

from collections.abc import Iterator

from twinbus.errors import InternalError, MessagingError, OutcomeUnknown


def _family(kind: type[MessagingError]) -> Iterator[type[MessagingError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == MessagingError.__module__:
            yield from _family(child)


KINDS = {kind.__name__: kind for kind in _family(MessagingError)}


def encode_error(error: MessagingError) -> bytes:
    kind = next(each for each in type(error).__mro__ if KINDS.get(each.__name__) is each)
    database = error.database if isinstance(error, OutcomeUnknown) else None
    return f"{kind.__name__} {'' if database is None else database}\n{error}".encode("utf-8", "replace")


def decode_error(data: bytes) -> MessagingError:
    head, _, text = data.decode("utf-8", "replace").partition("\n")
    name, _, number = head.partition(" ")
    kind = KINDS.get(name, InternalError)
    if kind is OutcomeUnknown:
        return OutcomeUnknown(text, int(number) if number.isascii() and number.isdigit() else None)
    return kind(text)
