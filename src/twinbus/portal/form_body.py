"""What a form sent: the body of a request in, names and texts out. Files arrive as the text that is in them.

Both encodings of forms, with a limit on their size; the standard library reads them, so no package is needed for it.
"""

from email.parser import BytesParser
from email.policy import HTTP
from urllib.parse import parse_qsl

from starlette.requests import Request

from twinbus.errors import ArgumentError

SIZE_MAX = 16 * 1_048_576
FIELDS_MAX = 2_000
URL_ENCODED, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"


async def read_form(request: Request) -> list[tuple[str, str]]:
    """Raises ArgumentError for what is not a form, or too large."""
    kind = request.headers.get("content-type", "")
    body = await _read(request)
    if kind.startswith(MULTIPART):
        return _multipart(kind, body)
    if not body or kind.startswith(URL_ENCODED):
        try:
            return parse_qsl(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=FIELDS_MAX)
        except ValueError:
            raise ArgumentError(f"The form has more than {FIELDS_MAX:,} fields. Choose fewer at a time.") from None
    raise ArgumentError("The request is not a form of this portal.")


async def _read(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > SIZE_MAX:
            raise ArgumentError(f"The form has more than {SIZE_MAX // 1_048_576} MB. Split the file.")
    return bytes(body)


def _multipart(kind: str, body: bytes) -> list[tuple[str, str]]:
    parsed = BytesParser(policy=HTTP).parsebytes(
        b"Content-Type: " + kind.encode("latin-1", "replace") + b"\r\n\r\n" + body
    )
    fields: list[tuple[str, str]] = []
    for part in parsed.iter_parts() if parsed.is_multipart() else ():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(content, bytes):
            fields.append((name, content.decode("utf-8-sig", errors="replace")))
    return fields
