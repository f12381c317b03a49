"""The AMQP 1.0 encoding: bytes in, values out, and back. No state of a connection, session or link is kept or known here.

types, layout               AMQP's primitive types as Python values; how many bytes each encoding takes (part 1)
decode, encode, arrays      any value from bytes, and back
composites                  described lists as dataclasses: the one place that decides how their fields are read and written
error_condition, delivery_state, terminus, performatives, sasl   the composites that the specification defines (parts 2 to 5)
frames                      cutting received bytes into frames
transfer_reader, transfer_writer   the two frames that come with every message, by hand and fast
frame_runs                  those frames again, where they are like the one before
sections, section_bounds    a message: decoded as a whole, or only its sections located (part 3)
"""
