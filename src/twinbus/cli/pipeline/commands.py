"""`twinbus pipeline`: the jobs that run on Spark, each in a module of its own."""

import typer

from twinbus.cli.pipeline import bill as pipeline_bill
from twinbus.cli.pipeline import capture as pipeline_capture
from twinbus.cli.pipeline import claims as pipeline_claims
from twinbus.cli.pipeline import package as pipeline_package
from twinbus.cli.pipeline import replay as pipeline_replay
from twinbus.cli.pipeline import syphon as pipeline_syphon

app = typer.Typer(no_args_is_help=True, help="Move and count messages in bulk, on Spark.")
pipeline_bill.register(app)
pipeline_capture.register(app)
pipeline_replay.register(app)
pipeline_claims.register(app)
pipeline_syphon.register(app)
pipeline_package.register(app)
