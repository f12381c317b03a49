"""The system's list of trusted authorities: a PEM file in; the file and the commands that add it or remove it out.

Debian, Ubuntu, Alpine    a file in /usr/local/share/ca-certificates, then update-ca-certificates
Fedora, RHEL, SUSE, Arch  a file in a folder of anchors, then update-ca-trust or update-ca-certificates
macOS                     security, for the system's keychain
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
KEYCHAIN = "/Library/Keychains/System.keychain"
COMMAND_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class SystemTrust:
    """`copy` is where the file goes first, None if the command takes it as it is."""

    copy: Path | None
    add: tuple[str, ...]
    remove: tuple[str, ...]

    def lines_to_add(self, file: Path) -> list[str]:
        copying = [] if self.copy is None else [_sudo("cp", str(file.absolute()), str(self.copy))]
        return [*copying, _sudo(*self.add)]

    def lines_to_remove(self) -> list[str]:
        deleting = [] if self.copy is None else [_sudo("rm", "-f", str(self.copy))]
        return [*deleting, _sudo(*self.remove)]

    def install(self, file: Path) -> None:
        """Raises PermissionError if this user may not, CommandFailed if the system's command does not work."""
        if self.copy is not None:
            shutil.copyfile(file, self.copy)
            # The folder's readers are all users; ours may keep its files to itself.
            self.copy.chmod(0o644)
        _run(self.add)

    def uninstall(self) -> None:
        """As `install`."""
        if self.copy is not None:
            self.copy.unlink(missing_ok=True)
        _run(self.remove)


def system_trust(
    file: Path,
    name: str,
    platform: str = sys.platform,
    folders: Sequence[tuple[Path, str, tuple[str, ...]]] = FOLDERS,
    find: Callable[[str], str | None] = shutil.which,
) -> SystemTrust | None:
    """What makes this system trust the authority of a namespace; None if we do not know."""
    if platform == "darwin":
        add = ("security", "add-trusted-cert", "-d", "-r", "trustRoot", "-k", KEYCHAIN, str(file.absolute()))
        return SystemTrust(None, add, ("security", "remove-trusted-cert", "-d", str(file.absolute())))
    for folder, ending, command in folders:
        if folder.is_dir() and find(command[0]) is not None:
            # By its place: namespaces of one name in two folders are two, and a renewed certificate replaces the old one.
            place = hashlib.sha256(str(file.absolute()).encode()).hexdigest()[:8]
            return SystemTrust(folder / f"twinbus-{name}-{place}{ending}", command, command)
    return None


def _sudo(*words: str) -> str:
    return shlex.join(("sudo", *words))


def _run(command: Sequence[str]) -> None:
    if command[0] == "security" and os.geteuid() != 0:
        raise PermissionError
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise CommandFailed(f"{command[0]} did not work: {fault}.") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise CommandFailed(f"{command[0]} did not work: {said[-1] if said else f'exit code {done.returncode}'}.")
