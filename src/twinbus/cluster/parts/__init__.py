"""What other nodes ask of the fragments of this one: frames in, calls on its entities, frames out.

part         one for each node: answers
visitor      what each of the other nodes holds here
left_overs   who has to know of messages that nobody has credit for
"""
