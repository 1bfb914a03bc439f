"""What a served thing's handshake says of it (CMD-8)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from support import Child, reference_python

import rlmesh
from rlmesh.transport.address import parse_address
from rlmesh.transport.dial import dial
from rlmesh.wire import messages
from rlmesh.wire.handshake import client_hello


def served(*arguments: str) -> Child:
    argv = [sys.executable, "-W", "error", "-m", "rlmesh.serve", *arguments]
    return Child(
        [*argv, "--address", "127.0.0.1:0"], environ={"PYTHONPATH": os.pathsep.join(sys.path)}
    )


def started(child: Child) -> tuple[str, list[str]]:
    """Return the server's address, and what was printed until it was known."""
    lines = [child.line()]
    while "serving" not in lines[-1]:
        lines.append(child.line())
    return lines[-1].split(" on ")[1].split(" ")[0], lines


def greeted(address: str, service: Any) -> dict[str, str]:
    """Return the facts in the handshake's answer."""
    hello = client_hello(service).SerializeToString()
    channel, answer = dial(
        parse_address(address),
        service,
        hello,
        token="",
        timeout=10,
        limit=1 << 28,
        request_timeout=10,
    )
    channel.close()
    response = getattr(messages, service).HandshakeResponse()
    response.ParseFromString(answer)
    return dict(response.base.peer_info.extra)


def test_row_CMD_8_an_env_is_described_as_it_is_served() -> None:
    with served("describe_noisy:Noisy") as child:
        address, lines = started(child)
        extra = greeted(address, "env")
    envelope = json.loads(extra[rlmesh.DESCRIBE_METADATA_KEY])
    expected = rlmesh.describe("describe_targets:Bare")
    expected["target"] = {
        "entrypoint": "describe_noisy:Noisy",
        "qualname": "describe_noisy:Noisy",
    }
    assert envelope == expected
    assert lines.count("written in make") == 1
    assert {"rlmesh.startup.env_ms", "rlmesh.startup.listen_ms"} <= set(extra)
    assert extra["rlmesh.workflow.base"] == "2026.06"


def test_row_CMD_8_lanes_are_counted_and_other_branches_are_not_built() -> None:
    with served("describe_targets:Branches", "--num-envs", "2") as child:
        envelope = json.loads(greeted(started(child)[0], "env")[rlmesh.DESCRIBE_METADATA_KEY])
    assert envelope["env_spec"]["num_envs"] == 2
    left, right = envelope["env_contracts"]["branches"]
    assert left["env_spec"] == envelope["env_spec"]
    assert right["env_spec"]["error"] == "not built: another contract branch is being served"


def test_row_CMD_8_a_model_is_described() -> None:
    with served("--model", "describe_targets:Policy") as child:
        extra = greeted(started(child)[0], "model")
    envelope = json.loads(extra[rlmesh.DESCRIBE_METADATA_KEY])
    assert envelope == rlmesh.describe("describe_targets:Policy")


def test_row_CMD_8_a_registered_env() -> None:
    with served("--env", "CartPole-v1") as child:
        envelope = json.loads(greeted(started(child)[0], "env")[rlmesh.DESCRIBE_METADATA_KEY])
    assert envelope["target"]["entrypoint"] == "CartPole-v1"
    assert envelope["env_spec"] == rlmesh.describe("describe_targets:CartPole")["env_spec"]


def test_a_server_made_by_hand_says_nothing_of_it() -> None:
    from describe_targets import Env

    with rlmesh.EnvServer(Env()) as server:
        response = messages.env.HandshakeResponse()
        core: Any = server._core
        response.ParseFromString(core.handshake(client_hello("env").SerializeToString()))
        assert rlmesh.DESCRIBE_METADATA_KEY not in response.base.peer_info.extra


def test_a_published_client_is_not_put_off_by_it() -> None:
    """The envelope is advisory: one more entry among the facts."""
    script = "import sys, rlmesh; print(rlmesh.RemoteEnv(sys.argv[1]).reset(seed=1)[0].shape)"
    with served("describe_targets:CartPole", "--workflow-edition", "2026.06") as child:
        done = subprocess.run(
            [reference_python(), "-c", script, started(child)[0]],
            env={**os.environ, "PYTHONPATH": ""},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.stdout == "[4]\n", done.stderr
