"""Java and its SDK: the suite in java/, built once into the build folder, which git ignores.

Maven gets the SDK when pom.xml changes, javac builds the suite when its sources change.
"""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.interop.foreign_suite import BUILD, SuiteUnavailable

FOLDER = Path(__file__).parent / "java"
SOURCES = sorted(FOLDER.glob("*.java"))
JAVA_MAJOR_MIN = 17
GET_TIMEOUT_S = 90.0

# One process of half a minute: code that is compiled once, and no second thread for the garbage.
JVM = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Dfile.encoding=UTF-8",
    "-Dstdout.encoding=UTF-8",
)


def sdk_version() -> str:
    pattern = r"<artifactId>azure-messaging-servicebus</artifactId>\s*<version>([^<]+)"
    found = re.search(pattern, (FOLDER / "pom.xml").read_text())
    assert found is not None
    return found[1]


def suite_command() -> list[str]:
    """What runs the suite. Raises SuiteUnavailable as `sdk_libraries` does."""
    libraries = sdk_libraries()
    classes = BUILD / f"java-suite-{_digest([FOLDER / 'pom.xml', *SOURCES])}"
    if not (classes / "complete").exists():
        _compile(classes, libraries)
    return ["java", *JVM, "-cp", f"{classes}{os.pathsep}{libraries}/*", "twinbus.interop.Suite"]


def sdk_libraries() -> Path:
    """The folder of the SDK. Raises SuiteUnavailable where a JDK or Maven is missing, or Maven cannot get the SDK."""
    for program in ("java", "javac", "mvn"):
        if shutil.which(program) is None:
            raise SuiteUnavailable(f"{program} is not installed; a JDK {JAVA_MAJOR_MIN} or later and Maven are needed")
    said = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=True)
    major = re.search(r"javac (\d+)", said.stdout + said.stderr)
    if major is None or int(major[1]) < JAVA_MAJOR_MIN:
        raise SuiteUnavailable(f"this JDK is too old; {JAVA_MAJOR_MIN} or later is needed")
    libraries = BUILD / f"java-sdk-{_digest([FOLDER / 'pom.xml'])}"
    if not (libraries / "complete").exists():
        _get_sdk(libraries)
    return libraries


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _start_anew(folder: Path, older: str) -> None:
    for other in BUILD.glob(older):
        shutil.rmtree(other)
    folder.mkdir(parents=True)


def _get_sdk(libraries: Path) -> None:
    _start_anew(libraries, "java-sdk-*")
    command = ["mvn", "--quiet", "--batch-mode", "--file", str(FOLDER / "pom.xml"), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={libraries}", "-DincludeScope=runtime"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GET_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise SuiteUnavailable("Maven could not get the Java SDK in time; what it got is kept, so try again") from None
    if done.returncode != 0:
        raise SuiteUnavailable(f"Maven could not get the Java SDK: {done.stdout.strip()[-500:]}")
    (libraries / "complete").touch()


def _compile(classes: Path, libraries: Path) -> None:
    _start_anew(classes, "java-suite-*")
    command = [
        "javac",
        "-Xlint:all,-serial,-processing,-classfile",
        "-Werror",
        "-encoding",
        "UTF-8",
        "-d",
        str(classes),
    ]
    command += ["-cp", f"{libraries}/*", *map(str, SOURCES)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"the suite does not build: {done.stderr}"
    (classes / "complete").touch()
