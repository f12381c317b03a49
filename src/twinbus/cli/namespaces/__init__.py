"""Commands about namespaces: run them, look after them, break them, and describe them as files."""
