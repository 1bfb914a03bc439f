"""Serve one Meta-World task: `python serve_task.py reach-v3 127.0.0.1:0`."""

from __future__ import annotations

import argparse
import os

import rlmesh
from task_env import TASKS, SeededTask


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=TASKS, metavar="NAME", help=f"one of {', '.join(TASKS)}")
    parser.add_argument("address", help="HOST:PORT (port 0 for a free one) or unix:///PATH")
    parser.add_argument("--ready-fd", type=int, help="write the bound address to this descriptor")
    args = parser.parse_args()

    # The idle limit is the last resort: a server whose evaluation was killed ends by itself.
    options = rlmesh.ServeOptions(idle_timeout_seconds=60)
    server = rlmesh.EnvServer(SeededTask(args.name), args.address, options=options)
    if args.ready_fd is None:
        print(server.address, flush=True)
    else:
        with os.fdopen(args.ready_fd, "w") as ready:
            ready.write(f"{server.address}\n")
    server.serve()


if __name__ == "__main__":
    main()
