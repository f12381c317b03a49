"""Examples on pages are programs: they are run."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_tests_on_the_page_about_testing_pass(tmp_path: Path) -> None:
    text = "\n\n".join(PROGRAM.findall((ROOT / "docs/how-to/test-your-application.md").read_text()))
    (tmp_path / "test_example.py").write_text(text)
    # From a folder of its own, as a user's project: nothing of this one's settings is there.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
