"""Projects on the JVM: a folder with a pom and sources goes in, the command that runs it comes out.

Built once into the build folder, which git ignores; a change of the pom or the sources builds it again.
"""

import re
import shutil
import subprocess
from pathlib import Path

from tests.interop.foreign_suite import SuiteUnavailable, build_folder, start_anew

JVM = Path(__file__).parent / "frameworks" / "jvm"
COMMON = JVM / "common"
JAVA_MAJOR_MIN = 17
BUILD_TIMEOUT_S = 110.0

# Processes that live for seconds: code that is compiled once, and no second thread for the garbage.
OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Dfile.encoding=UTF-8",
    "-Dstdout.encoding=UTF-8",
)


class MavenProject:
    """`main`: the class to run. `common`: a folder of sources that several projects share."""

    def __init__(self, folder: Path, main: str, common: Path | None = COMMON) -> None:
        self._name = folder.name
        self._main = main
        self._pom = folder / "pom.xml"
        self.sources = sorted(folder.glob("*.java"))
        self._all_sources = [*self.sources, *([] if common is None else sorted(common.glob("*.java")))]

    def version_of(self, artifact: str) -> str:
        found = re.search(rf"<artifactId>{artifact}</artifactId>\s*<version>([^<]+)<", self._pom.read_text())
        assert found is not None
        return found[1]

    def command(self, *options: str) -> list[str]:
        """What runs it. Raises SuiteUnavailable as `libraries` does."""
        path = f"{self.libraries()}/*"
        classes = build_folder(f"jvm-classes-{self._name}", [self._pom, *self._all_sources])
        if not (classes / "complete").exists():
            self._compile(path, start_anew(classes))
            (classes / "complete").touch()
        return ["java", *OPTIONS, *options, "-cp", f"{classes}:{path}", self._main]

    def libraries(self) -> Path:
        """The folder of what the pom asks for. Raises SuiteUnavailable where Java or Maven are missing, or Maven cannot get it."""
        _check_tools()
        folder = build_folder(f"jvm-libraries-{self._name}", [self._pom])
        if not (folder / "complete").exists():
            self._get_libraries(start_anew(folder))
            (folder / "complete").touch()
        return folder

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
        command = ["javac", "-Xlint:all,-serial,-processing,-classfile", "-proc:none", "-encoding", "UTF-8"]
        command += ["-cp", path, "-d", str(classes), *map(str, self._all_sources)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
        assert done.returncode == 0, f"{self._name} does not compile: {done.stderr}"


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
