"""The process that the demo kills: `python -m lazyckpt.demo JOB CHECKPOINT`."""

from __future__ import annotations

import sys

from lazyckpt.demo.training import main

if __name__ == "__main__":
    sys.exit(main())
