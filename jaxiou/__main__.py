"""`python -m jaxiou`, the same as the command `jaxiou`."""

import sys

from jaxiou.cli import main

if __name__ == "__main__":
    sys.exit(main())
