"""The system's list of trusted authorities: a PEM file in; the file and the commands that add it or remove it out.

Debian, Ubuntu, Alpine    a file in /usr/local/share/ca-certificates, then update-ca-certificates
Fedora, RHEL, SUSE, Arch  a file in a folder of anchors, then update-ca-trust or update-ca-certificates
macOS                     security, for the system's keychain

Debian's Java has a keystore, which a hook of update-ca-certificates changes. The hook is told of files that are linked for the first
time and of nothing else, so an authority would stay there that was removed or replaced: it is told here.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from twinbus.cli.failures import CommandFailed

FOLDERS = (
    (Path("/usr/local/share/ca-certificates"), ".crt", ("update-ca-certificates",)),
    (Path("/etc/pki/ca-trust/source/anchors"), ".pem", ("update-ca-trust",)),
    (Path("/etc/ca-certificates/trust-source/anchors"), ".pem", ("update-ca-trust",)),
    (Path("/etc/pki/trust/anchors"), ".pem", ("update-ca-certificates",)),
)
JAVA_HOOK = Path("/etc/ca-certificates/update.d/jks-keystore")
LINKS = Path("/etc/ssl/certs")
KEYCHAIN = "/Library/Keychains/System.keychain"
COMMAND_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class SystemTrust:
    """`copy` is where the file goes first, None if the command takes it as it is. `java_hook`: of Debian, if it has one."""

    copy: Path | None
    add: tuple[str, ...]
    remove: tuple[str, ...]
    java_hook: Path | None = None

    def lines_to_add(self, file: Path) -> list[str]:
        copying = [] if self.copy is None else [_sudo("cp", str(file.absolute()), str(self.copy))]
        return [*copying, _sudo(*self.add), *(self._lines_for_java("+") if self._is_linked else [])]

    def lines_to_remove(self) -> list[str]:
        deleting = [] if self.copy is None else [_sudo("rm", "-f", str(self.copy))]
        return [*deleting, _sudo(*self.remove), *self._lines_for_java("-")]

    @property
    def _is_linked(self) -> bool:
        """An earlier file has this name: the command sees no difference."""
        return self.copy is not None and self.copy.exists()

    def _told_to_java(self, sign: str) -> str:
        assert self.copy is not None
        return f"{sign}{LINKS / self.copy.stem}.pem"

    def _lines_for_java(self, sign: str) -> list[str]:
        if self.java_hook is None:
            return []
        return [f"echo {shlex.quote(self._told_to_java(sign))} | {_sudo(str(self.java_hook))}"]

    def _tell_java(self, sign: str) -> None:
        if self.java_hook is not None:
            _run((str(self.java_hook),), self._told_to_java(sign) + "\n")

    def install(self, file: Path) -> None:
        """Raises PermissionError if this user may not, CommandFailed if the system's command does not work."""
        was_linked = self._is_linked
        if self.copy is not None:
            shutil.copyfile(file, self.copy)
            # The folder's readers are all users; ours may keep its files to itself.
            self.copy.chmod(0o644)
        _run(self.add)
        if was_linked:
            self._tell_java("+")

    def uninstall(self) -> None:
        """As `install`."""
        if self.copy is not None:
            self.copy.unlink(missing_ok=True)
        _run(self.remove)
        self._tell_java("-")


def system_trust(
    file: Path,
    name: str,
    platform: str = sys.platform,
    folders: Sequence[tuple[Path, str, tuple[str, ...]]] = FOLDERS,
    find: Callable[[str], str | None] = shutil.which,
    java_hook: Path = JAVA_HOOK,
) -> SystemTrust | None:
    """What makes this system trust the authority of a namespace; None if we do not know."""
    if platform == "darwin":
        add = ("security", "add-trusted-cert", "-d", "-r", "trustRoot", "-k", KEYCHAIN, str(file.absolute()))
        return SystemTrust(None, add, ("security", "remove-trusted-cert", "-d", str(file.absolute())))
    for folder, ending, command in folders:
        if folder.is_dir() and find(command[0]) is not None:
            # By its place: namespaces of one name in two folders are two, and a renewed certificate replaces the old one.
            place = hashlib.sha256(str(file.absolute()).encode()).hexdigest()[:8]
            copy = folder / f"twinbus-{name}-{place}{ending}"
            return SystemTrust(copy, command, command, java_hook if java_hook.is_file() else None)
    return None


def _sudo(*words: str) -> str:
    return shlex.join(("sudo", *words))


def _run(command: Sequence[str], said: str = "") -> None:
    """`said`: to its standard input."""
    if command[0] == "security" and os.geteuid() != 0:
        raise PermissionError
    try:
        done = subprocess.run(
            command, input=said, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise CommandFailed(f"{command[0]} did not work: {fault}.") from None
    if done.returncode != 0:
        answer = (done.stderr or done.stdout).strip().splitlines()
        raise CommandFailed(f"{command[0]} did not work: {answer[-1] if answer else f'exit code {done.returncode}'}.")
