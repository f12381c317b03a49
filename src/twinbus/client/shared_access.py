"""Shared access signatures, the signing side: a key in, a token out (protocol: `$cbs`, HTTP Authorization)."""

import base64
import hashlib
import hmac
from urllib.parse import quote

TOKEN_LIFETIME_S = 3600


def sign(resource: str, key_name: str, key: str, expires_at_s: int) -> str:
    """A token for `resource` and all below it, valid until `expires_at_s` (seconds since 1970)."""
    encoded = quote(resource, safe="")
    # The service takes the text of the key as it stands, though it looks like base64.
    digest = hmac.new(key.encode(), f"{encoded}\n{expires_at_s}".encode(), hashlib.sha256).digest()
    signature = quote(base64.b64encode(digest), safe="")
    return f"SharedAccessSignature sr={encoded}&sig={signature}&se={expires_at_s}&skn={quote(key_name, safe='')}"
