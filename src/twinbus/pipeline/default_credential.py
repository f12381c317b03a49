"""The credential of `credential=default`: azure-identity's DefaultAzureCredential, where that package is installed."""

from functools import cache
from importlib import import_module
from typing import cast

from twinbus.client.token_sources import TokenCredential


@cache
def default_credential() -> TokenCredential:
    """One for the process, which keeps its tokens: an authority is asked once for all connections. Raises ImportError."""
    return cast(TokenCredential, import_module("azure.identity").DefaultAzureCredential())
