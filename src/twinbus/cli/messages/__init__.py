"""Commands about messages: one by one, and many at once."""
