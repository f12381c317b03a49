"""The page on pairing says what an application has to accept, and names every option."""

from dataclasses import fields
from pathlib import Path

import pytest

from twinbus.pairing import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.rewriting.transfer import RESERVED_NAMES

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "pair-namespaces.md").read_text()
ACCEPTED = PAGE.partition("## What the application accepts")[2].partition("\n## ")[0]


@pytest.mark.rule("B10.1")
@pytest.mark.parametrize(
    "words",
    [
        "more than once",
        "new messages may arrive before the backlog is drained",
        "message session state is not available",
        "**Receiving stops** while the primary is down",
        *sorted(RESERVED_NAMES),
    ],
)
def test_the_page_says_what_an_application_accepts(words: str) -> None:
    assert words in ACCEPTED


def test_the_page_has_every_option() -> None:
    table = PAGE.partition("## Options")[2]
    named = [each.name for each in fields(SendAvailabilityPairedNamespaceOptions)]
    assert [name for name in named if f"| `{name}` |" not in table] == []
