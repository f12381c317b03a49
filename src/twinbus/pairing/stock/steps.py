"""Running a generator of decisions: with a function that blocks, or with one that is awaited.

The generator yields what is to be done and gets the outcome back, an error by `throw`. All
deciding is in the generator, so it is written and tested once for both colours. `failed` is how the first of them ended, if it has
been tried already.

Ctrl-C and a cancelled task end the generator at once. Otherwise it would go on to its last steps only once nobody holds the error any
more, which refers to it, and until then others would count it as under way.
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
    finally:
        steps.close()


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
    finally:
        steps.close()
