"""Projects on the JVM: a folder with a pom and sources goes in, the command that runs it comes out.

Built once into the build folder, which git ignores; a change of the pom or the sources builds it again.
"""

import hashlib
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.interop.foreign_suite import BUILD, SuiteUnavailable

JVM = Path(__file__).parent / "jvm"
JAVA_MAJOR_MIN = 17
BUILD_TIMEOUT_S = 110.0


class MavenProject:
    """`main`: the class to run. The folder is below `jvm`; what is in `jvm/common` is part of every project."""

    def __init__(self, folder: str, main: str) -> None:
        self._name = folder
        self._main = main
        self._pom = JVM / folder / "pom.xml"
        self.sources = sorted((JVM / folder).glob("*.java"))
        self._all_sources = [*self.sources, *sorted((JVM / "common").glob("*.java"))]

    def version_of(self, artifact: str) -> str:
        found = re.search(rf"<artifactId>{artifact}</artifactId>\s*<version>([^<]+)<", self._pom.read_text())
        assert found is not None
        return found[1]

    def command(self, *options: str) -> list[str]:
        """Raises SuiteUnavailable where Java or Maven are missing, or Maven cannot get the packages."""
        _check_tools()
        libraries = BUILD / f"jvm-libraries-{self._name}-{_digest([self._pom])}"
        classes = BUILD / f"jvm-classes-{self._name}-{_digest([self._pom, *self._all_sources])}"
        if not (libraries / "complete").exists():
            _remove_older(libraries)
            self._get_libraries(libraries)
            (libraries / "complete").touch()
        path = f"{libraries}/*"
        if not classes.exists():
            _remove_older(classes)
            self._compile(path, classes)
        # The processes live for seconds: compiling well is not worth it.
        return ["java", "-XX:TieredStopAtLevel=1", "-Xshare:auto", *options, "-cp", f"{classes}:{path}", self._main]

    def _get_libraries(self, folder: Path) -> None:
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
        command = ["mvn", "--quiet", "--batch-mode", "--file", str(self._pom), goal, f"-DoutputDirectory={folder}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise SuiteUnavailable(
                "mvn could not get the packages in time; what it got is kept, so try again"
            ) from None
        if done.returncode != 0:
            raise SuiteUnavailable(f"mvn could not get the packages: {done.stdout.strip()[-500:]}")

    def _compile(self, path: str, classes: Path) -> None:
        draft = classes.with_suffix(".new")
        command = ["javac", "-nowarn", "-proc:none", "-cp", path, "-d", str(draft), *map(str, self._all_sources)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
        assert done.returncode == 0, f"{self._name} does not compile: {done.stderr}"
        draft.rename(classes)


def trust_store(authority: Path, folder: Path) -> Path:
    """A PKCS #12 file, with the password `changeit`, of what a JVM has to trust."""
    store = folder / "trusted.p12"
    command = ["keytool", "-importcert", "-noprompt", "-alias", "twinbus", "-file", str(authority)]
    command += ["-keystore", str(store), "-storetype", "PKCS12", "-storepass", "changeit"]
    subprocess.run(command, capture_output=True, check=True)
    return store


def _check_tools() -> None:
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        raise SuiteUnavailable(f"{', '.join(missing)} not installed; Java {JAVA_MAJOR_MIN} and Maven are needed")
    said = subprocess.run(["javac", "-version"], capture_output=True, text=True).stdout
    found = re.search(r"javac (\d+)", said)
    if found is None or int(found[1]) < JAVA_MAJOR_MIN:
        raise SuiteUnavailable(f"{said.strip()} is too old; Java {JAVA_MAJOR_MIN} or later is needed")


def _remove_older(folder: Path) -> None:
    for older in BUILD.glob(f"{folder.name.rpartition('-')[0]}-*"):
        shutil.rmtree(older)


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
