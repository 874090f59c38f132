"""Steps of jax_privacy on the same networks, written in JAX; and JAX's own step without privacy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax_privacy.clipping import clipped_grad
from serving import serve

CLASSES, VOCABULARY, LENGTH, WIDTH, HEADS, BOUND = 10, 1000, 128, 256, 4, 1.0
CHUNKS = {"cnn": (240, 2), "transformer": (20, 1)}
RAGGED = {"cnn": (1, 2, 3, 4, 5, 7, 8), "transformer": (1, 2, 3, 4)}


def drawn(key: Any, *shape: int) -> Any:
    return jax.random.normal(key, shape) / max(1, shape[-1]) ** 0.5


def linear(key: Any, inputs: int, outputs: int) -> Any:
    return {"w": drawn(key, inputs, outputs), "b": jnp.zeros(outputs)}


def mapped(of: Any, x: Any) -> Any:
    return x @ of["w"] + of["b"]


def cnn_weights(key: Any) -> Any:
    keys = jax.random.split(key, 5)
    return [
        {"w": drawn(keys[0], 6, 3, 5, 5), "b": jnp.zeros(6)},
        {"w": drawn(keys[1], 16, 6, 5, 5), "b": jnp.zeros(16)},
        linear(keys[2], 400, 120),
        linear(keys[3], 120, 84),
        linear(keys[4], 84, CLASSES),
    ]


def cnn(weights: Any, x: Any) -> Any:
    for of in weights[:2]:
        x = jax.lax.conv(x, of["w"], (1, 1), "VALID") + of["b"][:, None, None]
        x = jax.lax.reduce_window(
            jax.nn.relu(x), -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"
        )
    x = x.reshape(len(x), -1)
    for of in weights[2:4]:
        x = jax.nn.relu(mapped(of, x))
    return mapped(weights[4], x)


def transformer_weights(key: Any) -> Any:
    keys = iter(jax.random.split(key, 30))
    norm = {"w": jnp.ones(WIDTH), "b": jnp.zeros(WIDTH)}
    layers = [
        {
            "first": norm,
            "second": norm,
            "maps": linear(next(keys), WIDTH, 3 * WIDTH),
            "out": linear(next(keys), WIDTH, WIDTH),
            "up": linear(next(keys), WIDTH, 4 * WIDTH),
            "down": linear(next(keys), 4 * WIDTH, WIDTH),
        }
        for _ in range(4)
    ]
    return {
        "table": drawn(next(keys), VOCABULARY, WIDTH),
        "places": drawn(next(keys), LENGTH, WIDTH),
        "layers": layers,
        "norm": norm,
        "out": linear(next(keys), WIDTH, VOCABULARY),
    }


def normalised(of: Any, x: Any) -> Any:
    x = x - x.mean(-1, keepdims=True)
    return x / jnp.sqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5) * of["w"] + of["b"]


def transformer(weights: Any, tokens: Any) -> Any:
    x = weights["table"][tokens] + weights["places"]
    for of in weights["layers"]:
        parts = jnp.split(mapped(of["maps"], normalised(of["first"], x)), 3, -1)
        q, k, v = (part.reshape(*part.shape[:2], HEADS, -1) for part in parts)
        seen = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + mapped(of["out"], seen.reshape(x.shape))
        hidden = jax.nn.gelu(mapped(of["up"], normalised(of["second"], x)), approximate=False)
        x = x + mapped(of["down"], hidden)
    return mapped(weights["out"], normalised(weights["norm"], x))


NETWORKS = {"cnn": (cnn_weights, cnn), "transformer": (transformer_weights, transformer)}


def rows_of(name: str) -> tuple[Any, Any]:
    """Inputs and targets of all chunks, (chunks, rows, …)."""
    rows, chunks = CHUNKS[name]
    one, two = jax.random.split(jax.random.key(1))
    if name == "cnn":
        x = jax.random.normal(one, (chunks, rows, 3, 32, 32))
        return x, jax.random.randint(two, (chunks, rows), 0, CLASSES)
    tokens = jax.random.randint(one, (chunks, rows, LENGTH + 1), 0, VOCABULARY)
    return tokens[..., :-1], tokens[..., 1:]


def loss_of(name: str) -> Callable[[Any, Any, Any], Any]:
    network = NETWORKS[name][1]

    def loss(weights: Any, x: Any, y: Any) -> Any:
        logs = jax.nn.log_softmax(network(weights, x))
        return -jnp.take_along_axis(logs, y[..., None], -1).mean()

    return loss


def plain(name: str, _block: str) -> Callable[[], Any]:
    """JAX's step without privacy."""
    weights, (x, y) = NETWORKS[name][0](jax.random.key(2)), rows_of(name)
    derivative = jax.jit(jax.grad(loss_of(name)))

    def step() -> Any:
        total = jax.tree.map(jnp.zeros_like, weights)
        for xs, ys in zip(x, y, strict=True):
            total = jax.tree.map(jnp.add, total, derivative(weights, xs, ys))
        return jax.block_until_ready(total)

    return step


def blocks(name: str, block: str) -> Callable[[], Any]:
    """Clipped mean gradients of blocks, one call for each size."""
    weights, (x, y) = NETWORKS[name][0](jax.random.key(2)), rows_of(name)
    rows = CHUNKS[name][0]
    each = RAGGED[name]
    sizes = (
        each * (rows // sum(each)) if block == "ragged" else (int(block),) * (rows // int(block))
    )
    views, first = [], 0
    for size in sorted(set(sizes)):
        count = sizes.count(size)
        views.append((slice(first, first + count * size), count, size))
        first += count * size
    derivative = jax.jit(
        clipped_grad(loss_of(name), batch_argnums=(1, 2), l2_clip_norm=BOUND, keep_batch_dim=False)
    )

    def step() -> Any:
        total = jax.tree.map(jnp.zeros_like, weights)
        for xs, ys in zip(x, y, strict=True):
            for some, count, size in views:
                parts = (t[some].reshape(count, size, *t.shape[1:]) for t in (xs, ys))
                total = jax.tree.map(jnp.add, total, derivative(weights, *parts))
        return jax.block_until_ready(total)

    return step


serve({"jax plain": plain, "jax_privacy": blocks})
