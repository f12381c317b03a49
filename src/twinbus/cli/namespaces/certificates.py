"""`twinbus certificate`: the authority behind a generated certificate, for clients that have to trust it."""

from pathlib import Path
from typing import Annotated

import typer

from twinbus.cli.command import DATA_DEFAULT, NAMESPACE_DEFAULT, DataOption, JsonOption, NamespaceOption
from twinbus.cli.failures import CommandFailed
from twinbus.cli.help_pages import Group
from twinbus.cli.namespaces.running import namespace_folder, read_running
from twinbus.cli.namespaces.system_trust import SystemTrust, system_trust
from twinbus.cli.output import Output
from twinbus.errors import ArgumentError

app = Group("The authority of a generated certificate, which clients must trust.")

NOT_READ_BY = (
    "Clients in .NET and Go, and curl, read the system's list. Java, Node and Python have their own lists: "
    "see docs/how-to/connect.md."
)
PrintOption = Annotated[bool, typer.Option("--print", help="Print the commands without running them.")]


@app.command("path")
def path(
    namespace: NamespaceOption = NAMESPACE_DEFAULT, data: DataOption = DATA_DEFAULT, as_json: JsonOption = False
) -> None:
    """Print the PEM file to trust. With --json also the names and expiry of the certificate."""
    from twinbus.server.tls import certificate_files, read_certificate

    authority = _authority(data, namespace)
    if not as_json:
        print(authority)
        return
    try:
        facts = read_certificate(certificate_files(authority.parent).certificate)
    except (OSError, ValueError) as fault:
        raise CommandFailed(f"The certificate next to {authority} cannot be read: {fault}.") from None
    until = facts.valid_until.isoformat()
    Output(as_json=True).record({"authority": str(authority), "names": facts.names, "valid_until": until})


@app.command("trust")
def trust(
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    data: DataOption = DATA_DEFAULT,
    print_only: PrintOption = False,
    as_json: JsonOption = False,
) -> None:
    """Add the authority to those that this system trusts, or print the commands if that needs more rights."""
    authority = _authority(data, namespace)
    place = _system_trust(authority, namespace)
    if print_only:
        _print(place.lines_to_add(authority), as_json=as_json)
        return
    try:
        place.install(authority)
    except PermissionError:
        raise _not_allowed(place.lines_to_add(authority)) from None
    Output(as_json=as_json).done(
        f"This system trusts {authority}. {NOT_READ_BY}", authority=str(authority), trusted=True
    )


@app.command("untrust")
def untrust(
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    data: DataOption = DATA_DEFAULT,
    print_only: PrintOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove the authority from those that this system trusts."""
    authority = _file(data, namespace)
    place = _system_trust(authority, namespace)
    if print_only:
        _print(place.lines_to_remove(), as_json=as_json)
        return
    try:
        place.uninstall()
    except PermissionError:
        raise _not_allowed(place.lines_to_remove()) from None
    Output(as_json=as_json).done(f"This system no longer trusts {authority}.", authority=str(authority), trusted=False)


def _file(data: Path, namespace: str) -> Path:
    from twinbus.server.tls import certificate_files, tls_folder

    return certificate_files(tls_folder(namespace_folder(data, namespace))).authority.absolute()


def _authority(data: Path, namespace: str) -> Path:
    running = read_running(namespace_folder(data, namespace))
    if running is not None and running.tls_authority is None:
        raise CommandFailed(f"'{namespace}' uses your own certificate: trust the authority that signed it.")
    file = _file(data, namespace)
    if not file.is_file():
        raise CommandFailed(f"The namespace '{namespace}' has no generated certificate in {data}. Start it first.")
    return file


def _system_trust(authority: Path, namespace: str) -> SystemTrust:
    found = system_trust(authority, namespace)
    if found is None:
        raise ArgumentError(
            f"twinbus does not know how to make this system trust an authority. Add {authority} by hand."
        )
    return found


def _not_allowed(lines: list[str]) -> CommandFailed:
    return CommandFailed(f"This user may not change the system's list. Run: {' && '.join(lines)}")


def _print(lines: list[str], *, as_json: bool) -> None:
    if as_json:
        Output(as_json=True).record({"commands": lines})
    else:
        print("\n".join(lines))
