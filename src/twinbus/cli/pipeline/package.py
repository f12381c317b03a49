"""`twinbus pipeline package`: what `spark-submit --py-files` takes."""

from pathlib import Path
from typing import Annotated

import typer

from twinbus.cli.command import JsonOption
from twinbus.cli.output import Output
from twinbus.pipeline.cache_folder import put
from twinbus.pipeline.shipping import archive


def register(app: typer.Typer) -> None:
    app.command("package")(package)


def package(
    file: Annotated[Path, typer.Argument(help="The archive to write, such as twinbus.zip.")],
    as_json: JsonOption = False,
) -> None:
    """Write the code that executors need as one file, for clusters that have no twinbus installed."""
    put(file, archive())
    Output(as_json=as_json).done(
        f"{file} is written. Use it with: spark-submit --py-files {file} …", file=str(file), bytes=file.stat().st_size
    )
