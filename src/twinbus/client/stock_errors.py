"""Errors of the official client as text for people: an exception in, the server's own sentence out."""

import html
import re

from twinbus.client.connecting.trust import CA_FILE_VARIABLE

PLAIN_ANSWER = "WRONG_VERSION_NUMBER"  # OpenSSL's word for an answer without TLS
NOT_TRUSTED = "CERTIFICATE_VERIFY_FAILED"
NO_ANSWER = "The namespace took the request and does not answer. What was asked may still happen."
DETAIL = re.compile(r"(?:.*<Detail>)?(?:SubCode=\d+\. )?(.*?)(?: TrackingId:.*)?", re.DOTALL)


def text_of_client_error(failure: Exception) -> str | None:
    """Without the codes for programs; None if it is not an error of the official client.

    Imported here: importing the client takes longer than most commands take to run, and many do not need it.
    """
    from azure.core.exceptions import AzureError, HttpResponseError, ServiceRequestError, ServiceResponseTimeoutError
    from azure.servicebus.exceptions import ServiceBusConnectionError

    if not isinstance(failure, AzureError):
        return None
    text = str(failure)
    if isinstance(failure, HttpResponseError):
        found = DETAIL.fullmatch(text)
        assert found is not None
        return html.unescape(found[1])
    if isinstance(failure, ServiceResponseTimeoutError):
        return NO_ANSWER
    # The SDK's own text omits what the server said when it refused a token or a link.
    inner = getattr(failure, "inner_exception", None)
    said = getattr(inner, "status_description", None) or getattr(inner, "description", None)
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said or text)
    if PLAIN_ANSWER in text:
        return "The namespace answers without TLS there. Add UseDevelopmentEmulator=true to its connection string."
    if NOT_TRUSTED in text:
        return f"{text.rstrip('.')}. Name the PEM file to trust with --ca-file or {CA_FILE_VARIABLE}."
    is_unreachable = isinstance(failure, ServiceRequestError | ServiceBusConnectionError)
    return f"{text.rstrip('.')}. Is the namespace running?" if is_unreachable else text
