"""The changelog from the files beside this one: prints nothing, writes CHANGELOG.md in the folder above."""

from pathlib import Path

HERE = Path(__file__).parent
SECTIONS = {"added": "Added", "changed": "Changed", "fixed": "Fixed"}
HEAD = "# Changelog\n\nMade from the files in `changes/` by `make docs`.\n\n## Unreleased\n"


def changelog() -> str:
    parts = [HEAD]
    for prefix, title in SECTIONS.items():
        entries = [file.read_text().strip() for file in sorted(HERE.glob(f"{prefix}-*.md"))]
        if entries:
            parts.append(
                f"\n### {title}\n\n" + "\n".join("- " + entry.replace("\n", "\n  ") for entry in entries) + "\n"
            )
    return "".join(parts)


if __name__ == "__main__":
    (HERE.parent / "CHANGELOG.md").write_text(changelog())
