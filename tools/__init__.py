"""Tools for working on the library, not part of it."""
