"""The pages as a site: README, CHANGELOG and docs/ in, a folder of HTML with search out. Run by `make docs`.

    python docs/build_site.py build/site

Nothing on the site asks another host: fonts and icons are the browser's or the site's own, and search runs in the browser.
The build fails on a link that leads nowhere, and on a page that would load something from elsewhere.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "build" / "site-source"
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "licence.md",
    "deploy/README.md": "deploy.md",
}
"""Pages that are not in docs/, and what they are called on the site."""
LINK = re.compile(r"(\]\()(?!https?://|#)([^)#\s]+)")

SETTINGS = """\
project = "twinbus"
author = "The twinbus authors"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "twinbus"
html_copy_source = False
html_show_sphinx = False
myst_heading_anchors = 6
# Examples in other languages than Sphinx knows, or cut short for the reader, are shown as they are.
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]
"""
CONTENTS = """
```{toctree}
:hidden:
:caption: %s

%s
```
"""


def main(target: Path) -> None:
    stage()
    (SOURCE / "conf.py").write_text(SETTINGS)
    with (SOURCE / "index.md").open("a") as index:
        index.writelines(CONTENTS % (heading, "\n".join(pages)) for heading, pages in contents())
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        "-d",
        str(SOURCE / ".doctrees"),
    ]
    done = subprocess.run([*command, str(SOURCE), str(target)], check=False)
    if done.returncode:
        sys.exit(done.returncode)
    foreign = sorted(
        {f"{page.relative_to(target)}: {url}" for page in target.rglob("*.html") for url in loaded_by(page)}
    )
    if foreign:
        sys.exit("These pages would ask other hosts:\n" + "\n".join(foreign))
    print(f"{target}/index.html: {sum(1 for _ in target.rglob('*.html'))} pages")


def stage() -> None:
    """A copy of all pages with links as they are on the site, and of the files that they link to."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", SOURCE, ignore=shutil.ignore_patterns("*.py", "requirements.txt", "__pycache__"))
    for name, page in OUTSIDE.items():
        text = (ROOT / name).read_text()
        (SOURCE / page).write_text(text if name.endswith(".md") else f"# Licence\n\n{text}")
    for page in SOURCE.rglob("*.md"):
        page.write_text(LINK.sub(partial(relinked, page), page.read_text()))


def relinked(page: Path, link: re.Match[str]) -> str:
    return link[1] + moved(link[2], page)


def moved(target: str, page: Path) -> str:
    """The same target, from where the page is on the site."""
    name = page.relative_to(SOURCE).as_posix()
    origin = next((outside for outside, there in OUTSIDE.items() if there == name), f"docs/{name}")
    wanted = (ROOT / origin).parent.joinpath(target).resolve().relative_to(ROOT).as_posix()
    if wanted in OUTSIDE:
        there = SOURCE / OUTSIDE[wanted]
    elif wanted.startswith("docs/"):
        there = SOURCE / wanted.removeprefix("docs/")
    elif (ROOT / wanted).is_file():
        there = SOURCE / "files" / wanted
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / wanted, there)
    else:
        sys.exit(f"{origin} links to {target}, which is not on the site.")
    return Path(*[".."] * (len(page.relative_to(SOURCE).parts) - 1), there.relative_to(SOURCE)).as_posix()


def contents() -> Iterator[tuple[str, list[str]]]:
    """Headings of the list of pages, and the pages below each."""
    for heading, folder in (("How to", "how-to"), ("Reference", "reference")):
        yield heading, [f"{folder}/{page.stem}" for page in sorted((SOURCE / folder).glob("*.md"))]
    yield "About", [page.stem for page in sorted(SOURCE.glob("*.md")) if page.name != "index.md"]


class Loading(HTMLParser):
    """Addresses that a browser loads by itself: not those of links that a reader follows."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        is_link = tag == "link" and (given.get("rel") or "") not in ("canonical", "prev", "next", "edit")
        for name in ("src", "srcset", "poster", *(("href",) if is_link else ())):
            url = given.get(name) or ""
            if re.match(r"(https?:)?//", url):
                self.found.append(url)


def loaded_by(page: Path) -> list[str]:
    parser = Loading()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser.found


if __name__ == "__main__":
    main(ROOT / (sys.argv[1] if len(sys.argv) > 1 else "build/site"))
