"""Stores that are about to have another owner.

moves          what is asked of them waits
mover          a planned move, as far as nodes talk about it
moved_frames   the locks that go with a store
"""
