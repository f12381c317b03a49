"""axe-core in the page itself: a tab in, what breaks a rule of accessible pages out.

The script comes with a wheel that is fetched once and kept in `build`; where that cannot be had, tests that need it are skipped.
"""

import functools
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.portal.chromium import Tab

WHEEL = "axe-playwright-python==0.1.8"
SCRIPT_NAME = "axe_playwright_python/axe.min.js"
KEPT = Path(__file__).parents[2] / "build" / "axe" / "axe.min.js"
DOWNLOAD_MAX_S = 100.0
TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
CONTRAST = "color-contrast"


def problems_of(tab: Tab, *, contrast_alone: bool = False) -> list[str]:
    """Each as the rule, what it says, and the first elements that break it."""
    if not tab.run("Boolean(window.axe)"):
        tab.run(f"{_script()}; true")
    only: dict[str, Any] = {"type": "rule", "values": [CONTRAST]} if contrast_alone else {"type": "tag", "values": TAGS}
    options = json.dumps({"runOnly": only, "resultTypes": ["violations"]})
    found: list[dict[str, Any]] = tab.run(f"axe.run(document, {options}).then((found) => found.violations)")
    return [
        f"{each['id']}: {each['help']}: {'; '.join(node['html'][:160] for node in each['nodes'][:3])}" for each in found
    ]


@functools.cache
def _script() -> str:
    if not KEPT.exists():
        _fetch()
    return KEPT.read_text()


def _fetch() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, WHEEL]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=DOWNLOAD_MAX_S)
        except (subprocess.SubprocessError, OSError):
            pytest.skip(f"axe-core cannot be fetched: pip download {WHEEL} fails here")
        (wheel,) = Path(folder).glob("*.whl")
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel) as opened, tempfile.NamedTemporaryFile(dir=KEPT.parent, delete=False) as draft:
            draft.write(opened.read(SCRIPT_NAME))
        # Another process of the same run may have done it meanwhile.
        Path(draft.name).replace(KEPT)
