"""Figures of tests, such as how many power cuts there were: printed at the end of a run (`conftest.py`)."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

Measured: TypeAlias = Callable[[str, Mapping[str, int]], None]
"""Adds figures to those of a kind of test: `measured("power cuts", {"torn": 12})`."""
