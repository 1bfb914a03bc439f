"""Every Python block of README.md and docs/ runs, in order, as a reader would run it.

A block that serves holds its process, so it gets one of its own while the blocks after it drive it.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md")))
    if BLOCK.search(page.read_text())
]
SECONDS = 60


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def start(code: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "SDL_VIDEODRIVER": "dummy"},
    )


def stop(servers: list[subprocess.Popen[str]]) -> None:
    for server in servers:
        server.kill()
        if server.stdout is not None and not server.stdout.closed:
            server.communicate()


def wait_for(port: int, server: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            pytest.fail(f"the serving block ended: {server.communicate()[0]}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"nothing listens on port {port} after {SECONDS} s")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_block_runs(page: Path, tmp_path: Path) -> None:
    port = free_port()
    blocks = [block.replace("5555", str(port)) for block in BLOCK.findall(page.read_text())]
    servers: list[subprocess.Popen[str]] = []
    try:
        for block in blocks:
            if ".serve(" in block:
                stop(servers)
                servers = [start(block, tmp_path)]
                wait_for(port, servers[0])
                continue
            process = start(block, tmp_path)
            output, _ = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, f"{block}\n---\n{output}"
    finally:
        stop(servers)
