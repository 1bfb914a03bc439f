"""Real simulators, rendering without a display. The oldest stack has none of them."""

from __future__ import annotations

import os

# MuJoCo and SDL read these when they are first imported.
os.environ.setdefault("MUJOCO_GL", "osmesa")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
