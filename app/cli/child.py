"""Runs `barnabas` as a child process: it stops (SIGTERM) when the other end of its standard input is closed."""

import sys

from ..signals import end_with_parent
from .main import main

if __name__ == "__main__":
    end_with_parent()
    main(sys.argv[1:])
