"""``python -m dpgrain`` is the command line."""

from dpgrain.cli import main

if __name__ == "__main__":
    main()
