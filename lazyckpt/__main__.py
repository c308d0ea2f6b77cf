"""The command line: `lazyckpt`, or `python -m lazyckpt`."""

from __future__ import annotations

import sys

from lazyckpt.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
