"""Calling code outside: what waits for an answer, receives messages, or has a wakeup.

One thread calls them all, one after the other, so what one of them raises is logged and ends there: a bug in one of them
must not cost the others their answers.
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
