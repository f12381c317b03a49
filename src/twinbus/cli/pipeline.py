"""`twinbus pipeline`: the jobs that run on Spark, each in a module of its own."""

import typer

from twinbus.cli import (
    pipeline_bill,
    pipeline_capture,
    pipeline_claims,
    pipeline_package,
    pipeline_replay,
    pipeline_syphon,
)

app = typer.Typer(no_args_is_help=True, help="Move and count messages in bulk, on Spark.")
pipeline_bill.register(app)
pipeline_capture.register(app)
pipeline_replay.register(app)
pipeline_claims.register(app)
pipeline_syphon.register(app)
pipeline_package.register(app)
