"""The ``sojourn`` command line: one module per command, registered in `app`."""

from sojourn.cli.app import app, main

__all__ = ["app", "main"]
