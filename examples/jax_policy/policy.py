"""A policy in JAX for gymnasium's CartPole-v1, and its training on a copy of the dynamics."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from rlmesh.jax import Model

POPULATION, ELITE, GENERATIONS, STEPS = 64, 8, 16, 500


class Balance(Model):
    """Pushes to the side that a small network says."""

    def load(self, weights: str = "balance.npz") -> None:
        with np.load(weights) as saved:
            self.weights = {name: jnp.asarray(saved[name]) for name in saved}

    def predict_batch(self, observations: jax.Array) -> jax.Array:  # float32 [N, 4]
        return (logit(self.weights, observations) > 0).astype(jnp.int32)  # [N]


def logit(weights: dict[str, jax.Array], observations: jax.Array) -> jax.Array:
    """How much the network wants to push right; observations `[..., 4]`."""
    hidden = jnp.tanh(observations @ weights["in"] + weights["bias"])
    return hidden @ weights["out"]


def initial(key: jax.Array) -> dict[str, jax.Array]:
    into, out = jax.random.split(key)
    return {
        "in": jax.random.normal(into, (4, 16)),
        "bias": jnp.zeros(16),
        "out": jax.random.normal(out, (16,)),
    }


def cart_pole(state: jax.Array, right: jax.Array) -> jax.Array:
    """The state 0.02 s later: Barto, Sutton and Anderson (1983), with gymnasium's constants."""
    gravity, cart, pole, half, force, seconds = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
    _, speed, angle, spin = state
    push = jnp.where(right, force, -force)
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    inner = (push + pole * half * spin**2 * sin) / (cart + pole)
    turn = (gravity * sin - cos * inner) / (half * (4.0 / 3.0 - pole * cos**2 / (cart + pole)))
    slide = inner - pole * half * turn * cos / (cart + pole)
    return state + seconds * jnp.array([speed, slide, spin, turn])


def survived(weights: dict[str, jax.Array], start: jax.Array) -> jax.Array:
    """How many of 500 steps the pole stays up, from `start`."""

    def step(carry: tuple[jax.Array, jax.Array], _: Any) -> tuple[Any, jax.Array]:
        state, up = carry
        state = cart_pole(state, logit(weights, state) > 0)
        up = up & (jnp.abs(state[0]) < 2.4) & (jnp.abs(state[2]) < 12 * jnp.pi / 180)
        return (state, up), up

    _, ups = jax.lax.scan(step, (start, jnp.bool_(True)), None, length=STEPS)
    return ups.sum()


def train(seed: int) -> tuple[dict[str, jax.Array], float]:
    """Return weights and the steps that the best of them survive, by the cross-entropy method."""
    key = jax.random.key(seed)
    flat, unflatten = ravel_pytree(initial(key))
    mean, spread = jnp.zeros_like(flat), jnp.ones_like(flat)

    @jax.jit
    def scores(crowd: jax.Array, starts: jax.Array) -> jax.Array:
        one = jax.vmap(lambda weights, start: survived(unflatten(weights), start), (None, 0))
        return jax.vmap(one, (0, None))(crowd, starts).mean(1)

    best = 0.0
    for _ in range(GENERATIONS):
        key, draw, begin = jax.random.split(key, 3)
        crowd = mean + spread * jax.random.normal(draw, (POPULATION, flat.size))
        starts = jax.random.uniform(begin, (8, 4), minval=-0.05, maxval=0.05)
        scored = scores(crowd, starts)
        elite = crowd[jnp.argsort(scored)[-ELITE:]]
        mean, spread = elite.mean(0), elite.std(0) + 0.05
        best = float(scored.max())
    return unflatten(mean), best
