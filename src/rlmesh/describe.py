"""``python -m rlmesh.describe``: print what can be known of an env or model without running it.

``rlmesh.describe`` is the function; so is this module, once it is imported.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from rlmesh.describing.command import program

    program()
else:
    from rlmesh.describing import describe

    # The import system binds what it finds here as the attribute of the package.
    sys.modules[__name__] = describe  # type: ignore[assignment]
