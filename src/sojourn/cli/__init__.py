"""The ``sojourn`` command: one module a command, put together in `app`."""

from sojourn.cli.app import app, main

__all__ = ["app", "main"]
