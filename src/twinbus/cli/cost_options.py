"""Options that the commands about money share."""

from pathlib import Path
from typing import Annotated

import typer

PricesOption = Annotated[
    Path | None,
    typer.Option("--prices", metavar="FILE", envvar="TWINBUS_PRICES", help="Price sheet; an example is built in."),
]
PlanOption = Annotated[
    str | None, typer.Option("--plan", help="Plan of the price sheet, such as standard; its default plan if not given.")
]
