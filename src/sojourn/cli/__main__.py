"""Run the command line as ``python -m sojourn.cli``."""

from sojourn.cli.app import main

if __name__ == "__main__":
    main()
