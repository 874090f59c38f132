"""``python -m dpgrain`` is the command line."""

from dpgrain.cli.app import main

if __name__ == "__main__":
    main()
