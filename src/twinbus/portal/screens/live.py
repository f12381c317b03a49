"""Server-sent events: parts of a page that change in, a stream that the page's script follows out.

An event is the HTML of one element, named by its id; the script replaces the content of that element. The stream ends when the
page is closed, and with it whatever was watched for it.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

from starlette.responses import StreamingResponse

from twinbus.portal.html.markup import Markup

PULSE_S = 15.0
"""A comment at least this often, so that a page that is gone is noticed."""


def event(element_id: str, content: Markup) -> str:
    return f"data: {json.dumps({'id': element_id, 'html': content})}\n\n"


def ending() -> str:
    """Nothing more will come: the script closes the stream instead of asking again."""
    return "event: end\ndata: {}\n\n"


def stream(events: AsyncIterator[str]) -> StreamingResponse:
    return StreamingResponse(_with_pulse(events), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _with_pulse(events: AsyncIterator[str]) -> AsyncIterator[str]:
    yield ": hello\n\n"
    source = aiter(events)
    waiting = asyncio.ensure_future(anext(source, None))
    try:
        while True:
            done, _ = await asyncio.wait({waiting}, timeout=PULSE_S)
            if not done:
                yield ": still here\n\n"
                continue
            found = waiting.result()
            if found is None:
                return
            yield found
            waiting = asyncio.ensure_future(anext(source, None))
    finally:
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await waiting
        await events.aclose()  # type: ignore[attr-defined]
