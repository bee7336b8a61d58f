"""Scripts that draw tables of the documentation from the source."""
