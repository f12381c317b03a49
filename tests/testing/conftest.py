"""The SDK does not idle while it polls."""

from tests.interop.conftest import quick_polling

__all__ = ["quick_polling"]
