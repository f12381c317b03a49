"""Messages as pages show them.

browser         pages of a queue, oldest first over all fragments, and search in it
filters         SQL filters and actions on messages at hand: which match, and what they become
bodies          a body as JSON, XML, text or hex, with how it is encoded
records         a message as a JSON line, and back
groups          dead letters by reason, description and first words
"""
