"""Paired namespaces for asyncio: the names of `twinbus.pairing` over the SDK's `azure.servicebus.aio` clients."""

from twinbus.pairing.aio.pair import PairedNamespaceClient, pair_namespaces
from twinbus.pairing.aio.sender import PairedSender

__all__ = ["pair_namespaces", "PairedNamespaceClient", "PairedSender"]
