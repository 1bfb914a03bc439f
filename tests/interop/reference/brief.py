"""How a reference program dies: its own frames and the error, and none of the package's source."""

from __future__ import annotations

import os
import sys
import traceback

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _report(kind, exc, tb):
    frames = traceback.extract_tb(tb)
    shown = traceback.format_list([frame for frame in frames if frame.filename.startswith(_OURS)])
    print(*shown, f"{kind.__name__}: {exc}", sep="", file=sys.stderr)


sys.excepthook = _report
