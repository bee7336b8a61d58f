"""Run the command line as ``python -m sojourn``, where its script is not on the path."""

from sojourn.cli.app import main

if __name__ == "__main__":
    main()
