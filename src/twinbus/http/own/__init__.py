"""Pages that only we have, mostly as JSON; the docstring of `twinbus.http` says which module has which."""
