"""The page on `$management` says what the table of operations says."""

import re
from pathlib import Path

from twinbus.gateway.requests.handlers import HANDLERS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "management-operations.md").read_text()
ROW = re.compile(r"^\| `(com\.[a-z:-]+)` \| (\w+) \| (.+)$", re.MULTILINE)
FIELD_READ = re.compile(
    r'arguments\.(?:text|optional_text|number|count|is_set|binary|sequence|mapping)\(\s*"([a-z-]+)"'
)


def test_every_operation_is_on_the_page_with_the_right_it_needs() -> None:
    shown = {name: right for name, right, _ in ROW.findall(PAGE)}
    assert shown == {name: entry.right.value for name, entry in HANDLERS.items()}


def test_every_field_that_an_operation_reads_is_on_the_page() -> None:
    sources = [*(ROOT / "src" / "twinbus" / "gateway" / "requests").glob("*.py")]
    fields = {name for source in sources for name in FIELD_READ.findall(source.read_text())}
    assert len(fields) > 20
    rows = " ".join(rest for _, _, rest in ROW.findall(PAGE))
    assert {name for name in fields if f"`{name}`" not in rows and f"`{name} " not in rows} == set()
