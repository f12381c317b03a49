"""`twinbus pipeline`: the jobs that run on Spark, and the archive that their executors need."""

from pathlib import Path
from typing import Annotated

import typer

from twinbus.cli.command import JsonOption
from twinbus.cli.help_pages import Group
from twinbus.cli.output import Output
from twinbus.cli.pipeline import bill, capture, claims, replay, syphon
from twinbus.pipeline.cache_folder import put
from twinbus.pipeline.shipping import archive

app = Group("Move and count messages in bulk, on Spark.")
bill.register(app)
capture.register(app)
replay.register(app)
claims.register(app)
syphon.register(app)


@app.command("package")
def package(
    file: Annotated[Path, typer.Argument(help="The archive to write, such as twinbus.zip.")],
    as_json: JsonOption = False,
) -> None:
    """Write the code that executors need as one file, for clusters without twinbus installed."""
    put(file, archive())
    Output(as_json=as_json).done(
        f"Wrote {file}. Use it with: spark-submit --py-files {file} …", file=str(file), bytes=file.stat().st_size
    )
