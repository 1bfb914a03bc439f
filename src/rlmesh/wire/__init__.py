"""``rlmesh-wire-v1``: messages, metadata maps, spaces, contract, handshake, errors and codes.

Import the submodules; nothing is loaded here, so ``import rlmesh`` does not load protobuf.
"""
