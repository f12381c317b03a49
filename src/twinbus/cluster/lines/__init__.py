"""The protocol between two nodes: bytes in, calls out; bytes out for every call.

line, frames      questions, answers, beats
talk              what is said over lines about messages
values, columns   values with their types; messages by the hundred
error_values      errors that cross a line
holders           the names of holds on message sessions
"""
