"""`make site`: every page, search, links that lead somewhere, and nothing from another host. Needs the package index."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200)]


def test_the_pages_become_a_site_that_asks_nobody(source: Path) -> None:
    done = subprocess.run(
        ["make", "site", f"PYTHON={sys.executable}"],
        cwd=source,
        capture_output=True,
        text=True,
        timeout=1000,
        check=False,
    )
    # A link that leads nowhere and a page that loads something from elsewhere end the build.
    assert done.returncode == 0, done.stdout + done.stderr
    site = source / "build" / "site"
    pages = {page.relative_to(source / "docs").with_suffix(".html") for page in (source / "docs").rglob("*.md")}
    assert {page for page in pages if not (site / page).exists()} == set()
    assert "backup" in (site / "searchindex.js").read_text()
    assert "how-to/backup.html" in (site / "index.html").read_text()
