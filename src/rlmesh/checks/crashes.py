"""What somebody else's code raised, in one line."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

__all__ = ["CRASHES", "crash_text"]

CRASHES = (Exception, SystemExit)
"""What an env may raise without ending the check; Ctrl-C is not among them."""

_HERE = str(Path(__file__).resolve().parents[1])
_STANDARD = (sysconfig.get_path("stdlib"), "<frozen")
_INSTALLED = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))


def crash_text(exc: BaseException) -> str:
    """Return type, message and place of ``exc``.

    The place is the last line of code that is not installed, else of an installed package; this
    one's own lines and the standard library's are none.
    """
    message = " ".join(str(exc).split())
    text = f"{type(exc).__name__}: {message}" if message else type(exc).__name__
    frames = [
        frame
        for frame in traceback.extract_tb(exc.__traceback__)
        if not frame.filename.startswith(_HERE)
    ]
    packages = [frame for frame in frames if frame.filename.startswith(_INSTALLED)]
    own = [
        frame
        for frame in frames
        if frame not in packages and not frame.filename.startswith(_STANDARD)
    ]
    if not (own or packages):
        return text
    last = (own or packages)[-1]
    return f"{text} ({Path(last.filename).name}:{last.lineno}, in {last.name})"
