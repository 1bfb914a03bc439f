"""``python -m rlmesh.serve``."""

import sys

from rlmesh.serve import main

if __name__ == "__main__":
    sys.exit(main())
