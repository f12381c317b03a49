"""What a form sent: the body of a request in, names and texts out. Files arrive as the text that is in them.

Both encodings of forms, with limits on their size and on their fields. What is in a form is not known to be harmless, and the
loop that reads it serves everybody: parts are found by their boundary alone, in time that grows with the size.
"""

import asyncio
from email.message import Message
from urllib.parse import parse_qsl

from starlette.requests import Request

from twinbus.errors import ArgumentError

SIZE_MAX = 16 * 1_048_576
WAIT_S = 60.0
FIELDS_MAX = 2_000
PART_HEADER_MAX = 4_096
URL_ENCODED, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"


async def read_form(request: Request, size_max: int = SIZE_MAX) -> list[tuple[str, str]]:
    """Raises ArgumentError for what is not a form, too large or too slow."""
    kind = request.headers.get("content-type", "")
    try:
        async with asyncio.timeout(WAIT_S):
            body = await _read(request, size_max)
    except TimeoutError:
        raise ArgumentError(f"The form did not arrive within {WAIT_S:g} s. Send it again.") from None
    if kind.startswith(MULTIPART):
        return _multipart(kind, body)
    if not body or kind.startswith(URL_ENCODED):
        try:
            return parse_qsl(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=FIELDS_MAX)
        except ValueError:
            raise _too_many() from None
    raise _not_ours()


async def _read(request: Request, size_max: int) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > size_max:
            raise ArgumentError(f"The form has more than {size_max / 1_048_576:g} MB. Split the file.")
    return bytes(body)


def _multipart(kind: str, body: bytes) -> list[tuple[str, str]]:
    boundary = _parameter(kind, "boundary")
    if not boundary:
        raise _not_ours()
    mark = b"\r\n--" + boundary.encode(errors="replace")
    # What is before the first mark and after the last one is no field.
    parts = (b"\r\n" + body).split(mark, FIELDS_MAX + 2)[1:]
    if len(parts) > FIELDS_MAX + 1:
        raise _too_many()
    fields: list[tuple[str, str]] = []
    for part in parts:
        if part.startswith(b"--"):
            break
        end = part.find(b"\r\n\r\n", 0, PART_HEADER_MAX)
        name = _name(part[:end]) if end >= 0 else None
        if name is not None:
            fields.append((name, part[end + 4 :].decode("utf-8-sig", errors="replace")))
    return fields


def _name(header: bytes) -> str | None:
    for line in header.decode(errors="replace").split("\r\n"):
        key, _, value = line.partition(":")
        if key.strip().lower() == "content-disposition":
            return _parameter(value.strip(), "name")
    return None


def _parameter(header: str, name: str) -> str | None:
    message = Message()
    message["Content-Type"] = header
    found = message.get_param(name)
    return found if isinstance(found, str) else None


def _too_many() -> ArgumentError:
    return ArgumentError(f"The form has more than {FIELDS_MAX:,} fields. Choose fewer at a time.")


def _not_ours() -> ArgumentError:
    return ArgumentError("The request is not a form of this portal.")
