"""Errors as sentences: an exception in, what a reader can act on out. None for what is a mistake of ours."""

import asyncio

import aiohttp

from twinbus.client.stock_errors import text_of_client_error
from twinbus.errors import MessagingError


def sentence_of(error: BaseException) -> str | None:
    if isinstance(error, MessagingError):
        return str(error)
    if isinstance(error, aiohttp.ClientError | OSError):
        return f"The namespace does not answer: {error}. Is it running?"
    if isinstance(error, asyncio.TimeoutError):
        return "The namespace did not answer in time. Try again."
    if isinstance(error, Exception):
        return text_of_client_error(error)
    return None
