"""What is written down is what the code does: generated pages are current, links lead somewhere, commands exist."""

import re
import tomllib
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import typer

from twinbus.cli.app import app
from twinbus.cli.reference import reference

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
ANCHOR = re.compile(r"\]\((?!https?://)([^)#]*)#([^)]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
IMPORT = re.compile(r"^\s*from (twinbus[\w.]*) import ([\w, ]+)$", re.MULTILINE)
SOURCE = re.compile(r"`([a-z_/]+\.py|[a-z]+\.[a-z_]+)`")
CODE = re.compile(r"^```.*?^```|^    .*?$|`[^`]+`", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\W*(?:\S*bin/)?twinbus ((?:[a-z]+ ?)+)", re.MULTILINE)


def all_commands(command: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    found = {path: command}
    for name, below in getattr(command, "commands", {}).items():
        found |= all_commands(below, (*path, name))
    return found


COMMANDS = all_commands(typer.main.get_command(app))


def test_the_reference_of_the_command_line_is_current() -> None:
    assert (ROOT / "docs/reference/cli.md").read_text() == reference(), "run: make docs"


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_and_option_says_what_it_does(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    assert command.help
    for parameter in command.params:
        assert parameter.help, f"{parameter.name} has no help"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def anchors(page: Path) -> set[str]:
    """The names that headings get where pages are shown: small letters, hyphens for spaces, nothing else."""
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in HEADING.findall(page.read_text())}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_headings_lead_to_one(page: Path) -> None:
    for target, anchor in ANCHOR.findall(page.read_text()):
        assert anchor in anchors(page.parent / target if target else page), f"{page.name} links to {target}#{anchor}"


def test_the_readme_leads_to_every_page() -> None:
    linked = set(LINK.findall((ROOT / "README.md").read_text()))
    pages = {page.relative_to(ROOT).as_posix() for page in PAGES} - {"README.md"}
    assert pages <= linked, f"README.md does not link to {sorted(pages - linked)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_on_pages_exist(page: Path) -> None:
    for code in CODE.findall(page.read_text()):
        for words in COMMAND.findall(code):
            assert tuple(words.split())[:1] in COMMANDS, f"{page.name} shows 'twinbus {words}'"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_examples_on_pages_import_exists(page: Path) -> None:
    for module, names in IMPORT.findall(page.read_text()):
        for name in names.split(", "):
            assert hasattr(import_module(module), name), f"{page.name} imports {name} from {module}"


def test_the_makefile_has_the_targets_that_the_readme_names() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make ([a-z]+)", (ROOT / "README.md").read_text(), re.MULTILINE)) <= targets


def test_the_sources_that_the_architecture_names_exist() -> None:
    sources = [path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py"))]
    packages = {f"src/twinbus/{path.parent.name}/" for path in (ROOT / "src/twinbus").glob("*/__init__.py")}
    for named in SOURCE.findall((ROOT / "docs/ARCHITECTURE.md").read_text()):
        wanted = named if named.endswith(".py") else named.replace(".", "/")
        is_ours = named.endswith(".py") or f"src/twinbus/{wanted.partition('/')[0]}/" in packages
        found = [each for each in sources if f"/{wanted}" in f"/{each}"]
        assert found or not is_ours, f"ARCHITECTURE.md names {named}"


def test_the_licence_is_stated_where_people_and_package_indexes_look() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "MIT"
    assert project["license-files"] == ["LICENSE"]
    assert (ROOT / "LICENSE").read_text().startswith("MIT License\n")
    assert "(LICENSE)" in (ROOT / "README.md").read_text()


PROSE_WIDTH_MAX = 130
HOW_TO = sorted((ROOT / "docs" / "how-to").glob("*.md"))
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
OUR_WORDS = re.compile(r"\b(?:lanes?|pinned|began)\b")


@pytest.mark.parametrize("page", [ROOT / "README.md", *HOW_TO], ids=lambda page: page.name)
def test_prose_of_pages_for_users_is_wrapped_and_free_of_our_own_words(page: Path) -> None:
    text = FENCED.sub("", page.read_text())
    lines = [line for line in text.splitlines() if not line.startswith(("|", "    ", "!"))]
    assert [line for line in lines if len(line) > PROSE_WIDTH_MAX] == []
    assert OUR_WORDS.findall(text) == []


def test_every_link_leads_somewhere_on_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_from_file_location("build_site", ROOT / "docs/build_site.py")
    assert spec is not None
    assert spec.loader is not None
    build_site = module_from_spec(spec)
    spec.loader.exec_module(build_site)
    monkeypatch.setattr(build_site, "SOURCE", tmp_path / "pages")
    build_site.stage()
    assert (tmp_path / "pages/files/deploy/three-nodes/shop.toml").is_file()
