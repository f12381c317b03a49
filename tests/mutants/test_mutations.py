"""The changes that `make mutants` makes, and the list of those that nobody can notice."""

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.mutants.__main__ import ROOT, Mutant, every_mutant, sample
from tests.mutants.callers import Callers, ReachReport
from tests.mutants.equivalent import Equivalent, Equivalents
from tests.mutants.mutations import KINDS, Mutation, is_valid, mutations
from tests.mutants.reach import bits, digest
from tests.mutants.trial import COPIED, TREE, Tree
from tests.mutants.unhindered import unhindered_time


def changed(source: str, kind: str) -> list[str]:
    text = source.encode()
    return [found.apply(text).decode() for found in mutations(text) if found.kind == kind]


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("compare", "a < b", ["a <= b"]),
        ("compare", "(a) is  not (b)", ["(a) is (b)"]),
        ("compare", "0 <= a < b", ["0 < a < b", "0 <= a <= b"]),
        ("compare", "'é' == a", ["'é' != a"]),
        ("constant", "a = f(41)", ["a = f(42)"]),
        ("constant", "a = True", ["a = False"]),
        ("constant", "a = 'text'", []),
        ("condition", "x = a if b else c", ["x = a if not (b) else c"]),
        ("condition", "x = [a for a in b if a.c]", ["x = [a for a in b if not (a.c)]"]),
        ("condition", "if TYPE_CHECKING:\n    a = 1", []),
        ("logic", "a and (b or c)", ["a or (b or c)", "a and (b and c)"]),
        ("logic", "(a  # this and that\n and b)", ["(a  # this and that\n or b)"]),
        ("arithmetic", "a + b", ["a - b"]),
        ("arithmetic", "a + 'text'", []),
        ("statement", "a.b(c)", ["pass"]),
        ("statement", "a = b", []),
        ("statement", "log.warning(a)", []),
        ("statement", "def f():\n    a.b = c", ["def f():\n    pass"]),
        ("statement", "a += 1", ["pass"]),
        ("statement", "'a docstring'", []),
        ("result", "def f() -> int:\n    return a", ["def f() -> int:\n    return None"]),
        ("result", "def f() -> bool:\n    return a", ["def f() -> bool:\n    return not (a)"]),
        ("result", "def f():\n    return None", []),
        ("argument", "f(a, b=c)", ["f(a)"]),
        ("argument", "f(a)", ["f()"]),
        ("argument", "assert f(a)", []),
        ("argument", "f(a, meaning=b)", []),
        ("argument", 'a.to_bytes(4, "big")', []),
        ("argument", 'a.to_bytes(4, "little")', ["a.to_bytes(4)"]),
        ("argument", "zip(a, f(b), strict=True)", ["zip(a, f(), strict=True)"]),
    ],
)
def test_a_change_of_each_kind(kind: str, before: str, after: list[str]) -> None:
    assert changed(before, kind) == after


def test_a_change_knows_its_line_and_the_function_that_it_is_in() -> None:
    source = b"A = 1\n\n\nclass C:\n    B = 2\n\n    def f(self):\n        def g():\n            return lambda: 3\n"
    numbers = [found for found in mutations(source) if found.kind == "constant"]
    assert [(found.line, found.function) for found in numbers] == [(1, ""), (5, ""), (9, "C.f.g")]


def test_a_change_knows_the_lines_of_its_statement_or_of_the_head_of_one_that_has_others_inside() -> None:
    source = b"def f(a):\n    if (\n        a == 1\n    ):\n        return g(\n            2,\n        )\n"
    numbers = [found for found in mutations(source) if found.kind == "constant"]
    assert [found.statement_lines for found in numbers] == [(2, 4), (5, 7)]


def test_a_sample_has_every_kind_is_valid_and_the_same_for_its_seed(tmp_path: Path) -> None:
    code = "def f(a, b):\n    a.c(b, 1)\n    if a < b and b + 2:\n        return f(a)\n"
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "a.py").write_text(code * 5)

    def drawn(seed: int) -> list[Mutant]:
        return sample(every_mutant(tmp_path, ["broker"], None), 16, seed)

    first = drawn(1)
    assert len(set(first)) == 16
    assert {mutant.mutation.kind for mutant in first} == set(KINDS)
    assert all(is_valid(mutant.mutation.apply(mutant.source)) for mutant in first)
    assert first == drawn(1) != drawn(2)


def reached(seconds: float, **lines: list[int]) -> dict[str, object]:
    by_file = {f"broker/{file}.py": f"{bits(found):x}" for file, found in lines.items()}
    return {"seconds": seconds, "clock": seconds, "lines": by_file}


def test_the_tests_of_a_change_reach_its_statement_and_the_nearest_and_quickest_come_first() -> None:
    source = (
        b"A = 1\n\ndef f(a):\n    a = 2\n    if a:\n        a = 3\n\ndef g():\n    return 4\n\ndef h():\n    return 5\n"
    )
    seen = {
        "tests/gateway/t.py::far": reached(1, a=[4, 5]),
        "tests/broker/t.py::slow": reached(2, a=[4, 5]),
        "tests/broker/t.py::quick": reached(1, a=[4]),
        "tests/broker/t.py::importing": reached(3, a=[0]),
        "tests/broker/t.py::other": reached(1, b=[4]),
        "tests/broker/t.py::calling": reached(4, a=[12]),
    }
    tests = Callers({"t.py": {"failed": [], "tests": seen}}, {"broker/a.py": bits([1, 3, 8, 9, 12])})
    outside, first, unreached, imported, called_too = [found for found in mutations(source) if found.kind == "constant"]

    def names(change: Mutation) -> tuple[str, list[str]]:
        function, found = tests.of("broker/a.py", change)
        return function, [test.node_id.rpartition(":")[2] for test in found]

    assert names(first) == ("f", ["quick", "slow", "far"])
    assert names(unreached) == ("f", [])
    everybody = ["quick", "slow", "importing", "calling", "far"]
    assert names(outside) == ("", everybody)
    assert names(imported) == ("", everybody), "of those that import it"
    assert names(called_too) == ("", ["calling"])


def test_what_tests_reach_is_kept_until_something_of_that_or_their_file_changes(tmp_path: Path) -> None:
    root, kept = tmp_path / "root", tmp_path / "reach.json"
    source = root / "src" / "twinbus"
    source.mkdir(parents=True)
    files = ["one.py", "two.py", "three.py"]
    for path in (source / "a.py", source / "b.py", *[root / name for name in files]):
        path.write_text("")
    seen = {
        name: {"digest": digest([root / name]), "failed": [], "tests": {f"{name}::t": {"lines": {reached: "6"}}}}
        for name, reached in (("one.py", "a.py"), ("two.py", "b.py"))
    }
    report = ReachReport(root, kept)
    assert report.missing(files) == files
    report.add(files, json.dumps({"test_files": seen, "imported": {"a.py": "6", "b.py": "6"}}))

    again = ReachReport(root, kept)
    assert again.missing(files) == []
    assert again.imported == dict.fromkeys(["a.py", "b.py"], bits([1, 2]))
    (root / "two.py").write_text("a = 1")
    assert ReachReport(root, kept).missing(files) == ["two.py"]
    (source / "a.py").write_text("a = 1")
    again = ReachReport(root, kept)
    assert again.missing(files) == ["one.py", "two.py"]
    assert again.imported == {"b.py": bits([1, 2])}


def test_a_process_has_no_more_time_than_passes_and_all_of_it_where_nobody_knows_who_took_some() -> None:
    assert unhindered_time(os.getpid()) <= time.monotonic()
    before = time.monotonic()
    assert before <= unhindered_time(0) <= time.monotonic(), "there is no such process"


def test_a_tree_ends_whatever_its_tests_started_in_whatever_session(tmp_path: Path) -> None:
    for name in COPIED:
        (tmp_path / name).mkdir()
    tree = Tree(tmp_path, [])
    # As PostgreSQL: of no group or session of whoever started it.
    process = subprocess.Popen(["sleep", "60"], env={**os.environ, TREE: str(tree.root)}, start_new_session=True)
    with tree:
        pass
    assert process.wait(0) is not None
    assert not tree.root.exists()


def test_every_change_that_is_listed_as_equivalent_can_still_be_made_and_has_a_reason() -> None:
    found = Equivalents.load()
    listed = found.reasons
    source = ROOT / "src" / "twinbus"
    possible = {
        Equivalent.of(file, found, content)
        for file, content in {name.file: (source / name.file).read_bytes() for name in listed}.items()
        for found in mutations(content)
    }
    assert set(listed) - possible == set()
    assert all(reason.strip().endswith(".") for reason in [*listed.values(), *found.tunable.values()])
    for file, name in found.tunable:
        content = (source / file).read_bytes()
        outside = [Equivalent.of(file, each, content).before for each in mutations(content) if not each.function]
        assert any(re.match(rf"{name}\b", line) for line in outside), f"{file} has no constant {name}"
