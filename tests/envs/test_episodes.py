"""`completed_episodes`, episode ids and final infos, as the wire table has them.

Published clients score a run from these messages alone, so they are looked at as messages.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from support import RawPeer, serving
from support.driving import driving, driving_lanes
from support.zoo import Countdown, countdowns

from rlmesh.numpy import RemoteEnv
from rlmesh.wire.meta import decode_map

GYMNASIUM = tuple(int(n) for n in gymnasium.__version__.split(".")[:2])
ROLLS = GYMNASIUM >= (1, 1)


def overhear(remote: Any) -> list[Any]:
    """Return a list that gains every completed episode the client is told of."""
    heard: list[Any] = []
    recv = remote._link.recv

    def listening() -> Any:
        response, leaves = recv()
        heard.extend(response.step.completed_episodes)
        return response, leaves

    remote._link.recv = listening
    return heard


def test_a_whole_episode(door: str) -> None:
    """wire.md section 6: every field of EpisodeMetadata."""
    before = time.time_ns()
    with driving(Countdown(3)) as remote:
        heard = overhear(remote)
        (episode_id,) = remote.reset(seed=77)[1]["episode_ids"]
        for action in (1, 2):
            remote.step(action)
            assert not heard
        remote.step(4)
        after = time.time_ns()
        (episode,) = heard
        assert episode.episode_id == episode_id
        assert (episode.HasField("seed"), episode.seed, episode.env_index) == (True, 77, 0)
        assert (episode.step_count, episode.cumulative_reward) == (3, 7.0)
        assert (episode.terminated, episode.truncated) == (True, False)
        times = [before, episode.start_timestamp_ns, episode.end_timestamp_ns, after]
        assert times == sorted(times)
        final = decode_map(episode.final_info)
        assert (final["is_success"], final["name"], final["place"]) == (True, "step 3", [3, 4])
        remote.reset()
        remote.step(1)
        assert len(heard) == 1


def test_truncation_and_no_seed() -> None:
    """wire.md section 6: truncated, and no seed where none was given."""
    with driving(Countdown(9, limit=2)) as remote:
        heard = overhear(remote)
        remote.reset()
        remote.step(1)
        remote.step(1)
        (episode,) = heard
        assert (episode.terminated, episode.truncated) == (False, True)
        assert not episode.HasField("seed")
        assert decode_map(episode.final_info)["is_success"] is False


def test_an_interrupted_episode_is_told_of_at_the_next_step(door: str) -> None:
    """wire.md 8.2: a reset in between completes it as truncated; the NEXT step reports it."""
    with driving(Countdown(2)) as remote:
        heard = overhear(remote)
        (first,) = remote.reset(seed=1)[1]["episode_ids"]
        remote.step(3)
        (second,) = remote.reset(seed=2)[1]["episode_ids"]
        assert not heard
        info = remote.step(1)[4]
        (episode,) = heard
        assert (episode.episode_id, episode.seed, episode.step_count) == (first, 1, 1)
        assert (episode.terminated, episode.truncated) == (False, True)
        assert (episode.cumulative_reward, decode_map(episode.final_info)) == (3.0, {})
        assert info["completed_episodes"] == 1
        remote.step(1)
        assert [e.episode_id for e in heard] == [first, second]
        assert heard[1].terminated


def test_episodes_of_lanes(door: str) -> None:
    """VEC-3, wire.md 8.2: each lane's episode under its own id, seed and index."""
    with driving_lanes([Countdown(1), Countdown(3), Countdown(2)]) as remote:
        heard = overhear(remote)
        ids = remote.reset(seed=[10, 20, 30])[1]["episode_ids"]
        assert len({uuid.UUID(i) for i in ids}) == 3
        info = remote.step([1, 2, 3])[4]
        (episode,) = heard
        assert (episode.episode_id, episode.seed, episode.env_index) == (ids[0], 10, 0)
        assert info["completed_episodes"] == 1
        mask = np.array([True, True, False])
        fresh = remote.reset(seed=50, options={"reset_mask": mask})[1]["episode_ids"]
        assert fresh[2] == ids[2]
        info = remote.step([1, 1, 4])[4]
        told = {e.episode_id: e for e in heard[1:]}
        assert set(told) == {fresh[0], ids[1], ids[2]} and info["completed_episodes"] == 3
        cut, ended, again = told[ids[1]], told[ids[2]], told[fresh[0]]
        assert (cut.truncated, cut.step_count, cut.seed, cut.env_index) == (True, 1, 20, 1)
        assert (ended.terminated, ended.step_count, ended.seed) == (True, 2, 30)
        assert (ended.cumulative_reward, ended.env_index) == (7.0, 2)
        assert (again.terminated, again.step_count, again.seed) == (True, 1, 50)
        assert decode_map(ended.final_info)["place"] == [2, 4]
        assert decode_map(ended.final_info)["is_success"] is True


def test_a_base_seed_is_counted_up(door: str) -> None:
    """VEC-5: lane i's episode carries seed + i."""
    with driving_lanes([Countdown(1)] * 3) as remote:
        heard = overhear(remote)
        remote.reset(seed=7)
        remote.step([0, 0, 0])
        assert [(e.env_index, e.seed) for e in heard] == [(0, 7), (1, 8), (2, 9)]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"] if ROLLS else ["SameStep"])
def test_episodes_of_a_vector_env(mode: str) -> None:
    """VEC-6, VEC-11, wire.md 8.2: ids, counts and final infos in every autoreset mode."""
    keywords = {"autoreset_mode": mode} if ROLLS else {}
    with driving_lanes(SyncVectorEnv(countdowns(2, 3), **keywords)) as remote:
        heard = overhear(remote)
        current = list(remote.reset(seed=4)[1]["episode_ids"])
        expected: list[tuple[str, int, int, float]] = []
        steps, rewards = [0, 0], [0.0, 0.0]
        ended = [False, False]
        counted = 0
        for turn in range(12):
            if mode == "Disabled" and any(ended):
                current = remote.reset(options={"reset_mask": np.array(ended)})[1]["episode_ids"]
                steps = [0 if e else s for e, s in zip(ended, steps, strict=True)]
                rewards = [0.0 if e else r for e, r in zip(ended, rewards, strict=True)]
                ended = [False, False]
            action = 1 + turn % 4
            _, got, terminated, _, info = remote.step([action, action])
            counted += info["completed_episodes"]
            for lane in (0, 1):
                if ended[lane]:
                    assert info["episode_ids"][lane] != current[lane]
                    steps[lane], rewards[lane] = 0, 0.0
                    if mode == "NextStep":  # this step was the lane's reset
                        assert got[lane] == 0
                        continue
                else:
                    assert info["episode_ids"][lane] == current[lane]
                steps[lane] += 1
                rewards[lane] += got[lane]
                if terminated[lane]:
                    episode_id = info["episode_ids"][lane]
                    expected.append((episode_id, lane, steps[lane], rewards[lane]))
            current, ended = list(info["episode_ids"]), terminated.tolist()
        told = [(e.episode_id, e.env_index, e.step_count, e.cumulative_reward) for e in heard]
        assert told == expected and counted == len(expected) >= 6
        assert len({e.episode_id for e in heard}) == len(heard)
        for episode in heard:
            assert episode.terminated and not episode.truncated
            final = decode_map(episode.final_info)
            assert (final["steps"], final["is_success"]) == (episode.step_count, True)
            assert final["name"] == f"step {episode.step_count}"
        assert [e.seed for e in heard[:2]] == [4, 5]


class Succeeding:
    """A vector env of somebody's own, whose infos have no masks."""

    def __init__(self) -> None:
        from rlmesh.spaces import Box, Discrete

        self.num_envs = 2
        self.single_observation_space = Box(-1, 1, (1,))
        self.single_action_space = Discrete(2)

    def reset(self, **_: Any) -> Any:
        return np.zeros((2, 1)), {}

    def step(self, actions: Any) -> Any:
        info = {"success": np.array([True, False]), "task": "go", "two": {"a": [1, 2]}}
        return np.zeros((2, 1)), np.ones(2), np.ones(2, bool), np.zeros(2, bool), info

    def close(self) -> None:
        pass


def test_infos_without_masks_reach_the_final_info() -> None:
    """wire.md 8.2: success is read from final_info, so it must be each lane's own."""
    with driving_lanes(Succeeding()) as remote:
        heard = overhear(remote)
        remote.reset()
        remote.step([0, 0])
        assert [decode_map(e.final_info) for e in heard] == [
            {"success": True, "task": "go", "two": {"a": 1}},
            {"success": False, "task": "go", "two": {"a": 2}},
        ]


def raw_client(peer: RawPeer) -> None:
    peer.send(peer.hello(), peer.handshake())
    peer.receive()
    peer.send(peer.join(configure={}))
    assert peer.receive_response().HasField("configure")


def test_a_client_without_ids_is_served() -> None:
    """wire.md 8.2: sending none is allowed."""
    action = np.array([1])
    with serving(Countdown(1)) as server, RawPeer(server.address) as peer:
        raw_client(peer)
        for _ in range(2):
            peer.send(peer.join(reset={}))
            peer.receive_response()
            peer.send(peer.join([action], step={}))
            (episode,) = peer.receive_response().step.completed_episodes
            assert (episode.episode_id, episode.step_count) == ("", 1)


def test_close_hands_out_what_is_left() -> None:
    """wire.md sections 6 and 8.2: close is answered once, with final_episodes."""
    action = np.array([2])
    with serving(Countdown(9)) as server, RawPeer(server.address) as peer:
        raw_client(peer)
        peer.send(peer.join(reset={}), peer.join([action], step={}), peer.join(close={}))
        for _ in range(2):
            peer.receive_response()
        response = peer.receive_response()
        assert response.WhichOneof("kind") == "close"
        (episode,) = response.close.final_episodes
        assert (episode.step_count, episode.truncated, episode.cumulative_reward) == (1, True, 2.0)
        assert peer.rest() == b""


def test_a_dropped_client_leaves_nothing_to_the_next() -> None:
    """wire.md 8.2: its episodes are completed internally; a new client starts with none."""
    with serving(Countdown(2)) as server:
        with RemoteEnv(server.address) as remote:
            remote.reset()
            remote.step(1)
        with RemoteEnv(server.address) as remote:
            heard = overhear(remote)
            (episode_id,) = remote.reset()[1]["episode_ids"]
            remote.step(1)
            assert not heard
            remote.step(1)
            assert [e.episode_id for e in heard] == [episode_id]


def test_request_ids_are_answered() -> None:
    """wire.md 8.2: grpc-req-<n> is copied to the response, on every kind of it."""
    from rlmesh.transport.framing import FrameKind
    from rlmesh.wire import messages

    with serving(Countdown(9)) as server, RawPeer(server.address) as peer:
        raw_client(peer)
        for number, kind in enumerate(("reset", "step", "step", "render", "close")):
            request = messages.env.JoinRequest(request_id=f"grpc-req-{number}")
            getattr(request, kind).SetInParent()
            leaves = [np.array([1])] if kind == "step" else []
            peer.send(peer.frame(FrameKind.JOIN, request.SerializeToString(), leaves))
            response = peer.receive_response()
            assert response.request_id == f"grpc-req-{number}"
            assert response.WhichOneof("kind") == kind
