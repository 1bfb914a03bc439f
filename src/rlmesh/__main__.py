"""``python -m rlmesh``: the ``rlmesh`` command."""

import sys

from rlmesh.cli import main

if __name__ == "__main__":
    sys.exit(main())
