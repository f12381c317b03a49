"""Rules of subscriptions: descriptions and texts in, the copies that a message becomes out.

    text > lexer > parser > nodes > analysis, compiler > compiled > index
                                         evaluation, actions
wire                      rules as AMQP maps
view                      what a filter sees of a message
values, conversion        kinds of values, and how they compare and convert
arithmetic, like          operators that need more than a line
index, lookup             all rules of a topic, found by hash where possible
"""
