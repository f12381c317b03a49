"""Running a generator of decisions: with a function that blocks, or with one that is awaited.

The generator yields what is to be done and gets the outcome back, an error by `throw`. All
deciding is in the generator, so it is written and tested once for both colours. `failed` is how the first of them ended, if it has
been tried already.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

Request = TypeVar("Request")
Outcome = TypeVar("Outcome")
Result = TypeVar("Result")


def run(
    steps: Generator[Request, Outcome, Result],
    perform: Callable[[Request], Outcome],
    failed: Exception | None = None,
) -> Result:
    try:
        request = next(steps)
        if failed is not None:
            request = steps.throw(failed)
        while True:
            try:
                outcome = perform(request)
            except Exception as error:
                request = steps.throw(error)
            else:
                request = steps.send(outcome)
    except StopIteration as end:
        result: Result = end.value
        return result


async def run_async(
    steps: Generator[Request, Outcome, Result],
    perform: Callable[[Request], Awaitable[Outcome]],
    failed: Exception | None = None,
) -> Result:
    try:
        request = next(steps)
        if failed is not None:
            request = steps.throw(failed)
        while True:
            try:
                outcome = await perform(request)
            except Exception as error:
                request = steps.throw(error)
            else:
                request = steps.send(outcome)
    except StopIteration as end:
        result: Result = end.value
        return result
