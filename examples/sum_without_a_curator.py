"""Add up vectors of phones so that no one sees any single vector."""

import numpy as np

from dpgrain.shuffle import VectorSum

protocol = VectorSum(
    n_users=500, dim=20, l2_bound=1.0, epsilon=1.0, delta=1e-6, honest_fraction=0.9
)
vectors = np.random.default_rng(0).normal(0.1, 0.05, (500, 20))

device, shuffler = protocol.randomizer(), protocol.shuffler()
for number, vector in enumerate(vectors):
    shuffler.receive(
        device.report(vector, device=number), device=number
    )  # bytes, made on the phone
estimate = protocol.analyzer().estimate(shuffler.release())

print(estimate)
print(f"if half are honest: ε = {protocol.guarantee_with(0.5).epsilon():.2f}")
