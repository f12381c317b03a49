"""The `api-version` of a request: what the caller knows of, and so what is shown to it."""

import re

from twinbus.errors import ArgumentError
from twinbus.model.entity_properties import PARTITIONING_SINCE

OLDEST = "2012-03"
VERSION = re.compile(r"20\d\d-(0[1-9]|1[0-2])")


def read_api_version(text: str | None) -> str:
    """Versions compare as text. A request that names none gets the oldest."""
    if text is None:
        return OLDEST
    if not VERSION.fullmatch(text):
        raise ArgumentError(f"api-version is '{text[:64]}'. Write a year and a month, like api-version=2021-05.")
    return text


def check_partitioning(api_version: str, *, is_partitioned: bool) -> None:
    if is_partitioned and api_version < PARTITIONING_SINCE:
        raise ArgumentError(
            f"EnablePartitioning needs api-version={PARTITIONING_SINCE} or later. Add it to the URL of the request."
        )
