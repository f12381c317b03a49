"""A namespace on several nodes: what one node asks of another, free of I/O.

line, line_frames     the protocol between two nodes: bytes in, calls out; bytes out for every call
error_values          errors that cross a line
"""
