"""Messages as rows and Arrow columns.

columns             the columns of the source
message_rows        one message, decoded, as a row
message_parts       the sections of a message
message_shapes      what many messages have in common
shaped_rows         pages of messages as columns, cut by their shapes
shaped_properties   the same for application properties
"""
