"""How many messages one request can ask for: the namespace enforces these limits and clients keep to them."""

PEEK_COUNT_MAX = 250
"""Messages in one answer to the service's peek, and to a merged peek."""

RANGE_COUNT_MAX = 1_000
"""Messages in one page of a range."""
