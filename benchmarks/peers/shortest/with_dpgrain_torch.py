"""A network that reads digits, private for single records, by dpgrain."""

import numpy as np
import torch

import dpgrain as dg

digits = np.load("digits.npz")
x, y, z, truth = (torch.tensor(digits[name]) for name in ("x", "y", "z", "truth"))
network = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))
trained = dg.torch.train(
    network,
    torch.nn.functional.cross_entropy,
    torch.utils.data.TensorDataset(x, y),
    n_users=len(x),
    epsilon=3.0,
    delta=1e-5,
    evaluate=lambda network: {"accuracy": (network(z).argmax(1) == truth).float().mean()},
)
print(trained)
