"""Train a PyTorch network with whole users protected, in one call."""

import torch

import dpgrain as dg

torch.manual_seed(0)
users = torch.arange(2000).repeat_interleave(4)
x = torch.randn(8000, 8)
y = (x[:, 0] > 0).long()

trained = dg.torch.train(
    torch.nn.Linear(8, 2),
    torch.nn.functional.cross_entropy,
    torch.utils.data.TensorDataset(x, y),
    unit=dg.User(),
    users=users,
    n_users=2000,
    epsilon=4.0,
    delta=1e-6,
    steps=20,
)
print(trained.guarantee)
