"""What becomes of parameters: an order on stdin, the answers on stdout. Both packages run it.

Order: ``{"outcomes": [[factory, config], ...], "models": [[model, config], ...], "envelopes":
[[name, kind], ...], "published": [config, port]}``. Answers: the same keys.
"""

from __future__ import annotations

import json
import os
import sys
import warnings

import brief  # noqa: F401
from interop_params import envelope, outcome, published


def main():
    order = json.load(sys.stdin)
    answers, sys.stdout = sys.stdout, sys.stderr  # a server says where it listens
    warnings.simplefilter("ignore")
    found = {
        "outcomes": [outcome(name, config) for name, config in order["outcomes"]],
        "models": [outcome(name, config, "model") for name, config in order["models"]],
        "envelopes": [envelope(name, kind) for name, kind in order["envelopes"]],
        "published": published(*order["published"]),
    }
    json.dump(found, answers)
    answers.flush()
    os._exit(0)  # a server is still running


if __name__ == "__main__":
    main()
