"""Run by an interpreter that holds rlmesh 0.1.0: JSON cases on stdin, JSON results on stdout."""

from __future__ import annotations

import json
import sys

from runner import run_case

print(json.dumps([run_case(case) for case in json.load(sys.stdin)]))
