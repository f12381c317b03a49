"""Backlog queues: how they are named, found and created, how a parcel gets into one, and what waits in them."""
