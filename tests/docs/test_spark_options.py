"""The page on options and columns of the data source is made from the tables in the code."""

from pathlib import Path

from twinbus.pipeline.connection_options import CONNECTION_OPTIONS
from twinbus.pipeline.reference import reference
from twinbus.pipeline.source.option_table import SOURCE_OPTIONS
from twinbus.pipeline.source.rows.columns import NAMES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "spark-options.md"


def test_the_page_on_options_is_current() -> None:
    assert PAGE.read_text() == reference(), "run: make docs"


def test_every_option_and_column_is_on_the_page() -> None:
    page = PAGE.read_text()
    for name in (*CONNECTION_OPTIONS, *(option.name for option in SOURCE_OPTIONS), *NAMES):
        assert f"`{name}`" in page
