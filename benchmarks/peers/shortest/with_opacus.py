"""A network that reads digits, private for single records, by Opacus."""

import numpy as np
import torch
from opacus import PrivacyEngine

digits = np.load("digits.npz")
x, y, z, truth = (torch.tensor(digits[name]) for name in ("x", "y", "z", "truth"))
network = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))
engine = PrivacyEngine()
network, optimizer, loader = engine.make_private_with_epsilon(
    module=network,
    optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
    data_loader=torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x, y), batch_size=128, shuffle=True
    ),
    target_epsilon=3.0,
    target_delta=1e-5,
    epochs=20,
    max_grad_norm=1.0,
)
for _ in range(20):
    for some, digit in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(some), digit).backward()
        optimizer.step()
print("epsilon", engine.get_epsilon(1e-5))
print("accuracy", (network(z).argmax(1) == truth).float().mean().item())
