"""Run by an interpreter that holds rlmesh 0.1.0: reads a spec's JSON and writes it again, line by
line: {"kind": "tags" or "spec", "text": JSON} in, {"text": JSON} or {"error": message} out."""

from __future__ import annotations

import json
import sys

import rlmesh.adapters as adapters

CLASSES = {"tags": adapters.EnvTags, "spec": adapters.ModelSpec}

for line in sys.stdin:
    job = json.loads(line)
    try:
        answer = {"text": CLASSES[job["kind"]].from_json(job["text"]).to_json()}
    except ValueError as exc:
        answer = {"error": str(exc)}
    print(json.dumps(answer), flush=True)
