"""Calling out: to whoever waits for an answer, receives messages, or wanted to be woken.

One thread calls them all, one after the other. So what one of them raises ends there: a broken invariant of his must not
cost the others their answers.
"""

import logging
from collections.abc import Callable
from typing import ParamSpec

Parameters = ParamSpec("Parameters")

log = logging.getLogger(__name__)


def tell(call: Callable[Parameters, object], *arguments: Parameters.args, **named: Parameters.kwargs) -> None:
    try:
        call(*arguments, **named)
    except Exception:
        log.exception("call_broken")
