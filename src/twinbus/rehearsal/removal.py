"""What a rehearsal made in namespaces of somebody else is removed; what could not be is told by its path."""

from collections.abc import Callable, Mapping

from azure.core.exceptions import AzureError, ResourceNotFoundError, ServiceRequestError, ServiceResponseError

from twinbus.errors import MessagingError


class LeftBehind(MessagingError):
    """Entities of a rehearsal are still there."""


def remove_all(place: str, deletions: Mapping[str, Callable[[], None]]) -> None:
    """Each path by its function, whatever becomes of the others. Raises LeftBehind for those that are still there.

    Where nobody answers, only the first is waited for.
    """
    left: list[str] = []
    fault: AzureError | None = None
    for path, delete in deletions.items():
        if isinstance(fault, ServiceRequestError | ServiceResponseError):
            left.append(path)
            continue
        try:
            delete()
        except ResourceNotFoundError:
            continue
        except AzureError as error:
            left.append(path)
            fault = error
    if fault is not None:
        paths = ", ".join(left)
        raise LeftBehind(f"The {place} still has {paths}: delete them by hand. The reason: {fault}") from fault
