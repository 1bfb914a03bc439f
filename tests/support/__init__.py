"""Helpers of the suite: real processes, raw peers, envs that misbehave, leak counters."""

from support.envs import BlockingEnv, FunctionEnv, Gate
from support.leaks import Resources
from support.peers import RawPeer, serving
from support.processes import Child, ServerProcess, python_child, server_process
from support.reference import reference_python
from support.waiting import eventually, within

__all__ = [
    "BlockingEnv",
    "Child",
    "FunctionEnv",
    "Gate",
    "RawPeer",
    "Resources",
    "ServerProcess",
    "eventually",
    "python_child",
    "reference_python",
    "server_process",
    "serving",
    "within",
]
