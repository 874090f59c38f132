"""A network that reads digits, private for single records, by jax_privacy."""

import secrets

import jax
import numpy as np
import optax
from jax_privacy import accounting, batch_selection, clipped_grad, noise_addition

digits = np.load("digits.npz")
x, y, z, truth = (digits[name] for name in ("x", "y", "z", "truth"))
steps, batch = 220, 128
noise = accounting.calibrate_noise_multiplier(
    target_epsilon=3.0,
    accountant=accounting.DpsgdTrainingAccountant(
        dp_accountant_config=accounting.PldAccountantConfig()
    ),
    batch_sizes=batch,
    num_updates=steps,
    num_samples=len(x),
    target_delta=1e-5,
)
key = jax.random.key(secrets.randbits(63))
one, two, key = jax.random.split(key, 3)
weights = {
    "in": jax.random.normal(one, (64, 32)) / 8,
    "out": jax.random.normal(two, (32, 10)) / 6,
    "first": np.zeros(32),
    "second": np.zeros(10),
}


def network(weights, x):
    hidden = jax.nn.tanh(x @ weights["in"] + weights["first"])
    return hidden @ weights["out"] + weights["second"]


def loss(weights, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(network(weights, x), y).mean()


gradient = jax.jit(clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=(1, 2), normalize_by=batch))
privatizer = noise_addition.gaussian_privatizer(stddev=noise / batch, prng_key=key)
state = privatizer.init(weights)
optimizer = optax.sgd(1.0)
moments = optimizer.init(weights)
samples = batch_selection.CyclicPoissonSampling(sampling_prob=batch / len(x), iterations=steps)
for places in samples.batch_iterator(len(x), rng=secrets.randbits(63)):
    clipped = gradient(weights, x[places], y[places])
    noisy, state = privatizer.update(clipped, state)
    updates, moments = optimizer.update(noisy, moments)
    weights = optax.apply_updates(weights, updates)
print("accuracy", (network(weights, z).argmax(1) == truth).mean())
