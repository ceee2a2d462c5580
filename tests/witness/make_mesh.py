"""Prints what tests/ranks/model_mesh.cpp and model_context_images.cpp compare with: three steps of
their convolutional networks in PyTorch, on one rank. Run it with PyTorch: python3 tests/witness/make_mesh.py"""

import torch

from make_witness import made, made_labels

torch.set_default_dtype(torch.float64)


class Excited(torch.nn.Module):
    """Squeeze and excitation between two convolutions, and the largest of each plane."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(2, 6, 3, padding=1)
        self.squeeze, self.excite = torch.nn.Conv2d(6, 4, 1), torch.nn.Conv2d(4, 6, 1)
        self.second = torch.nn.Conv2d(6, 4, 3, padding=1)
        self.last = torch.nn.Linear(4, 5)

    def forward(self, x):
        x = torch.nn.functional.silu(self.first(x))
        factors = self.excite(torch.relu(self.squeeze(x.mean((2, 3), keepdim=True))))
        x = self.second(x * torch.sigmoid(factors))
        return self.last(torch.nn.functional.adaptive_max_pool2d(x, 1).flatten(1))


class Seen(torch.nn.Module):
    """A vision transformer of one block, on patches of 2 x 2 pixels that overlap."""

    def __init__(self):
        super().__init__()
        self.patches = torch.nn.Conv2d(2, 6, 2)
        self.token, self.position = torch.nn.Embedding(1, 6), torch.nn.Embedding(13, 6)
        self.norm = torch.nn.LayerNorm(6)
        self.q, self.k, self.v = (torch.nn.Linear(6, 6) for _ in range(3))
        self.out = torch.nn.Linear(6, 6)
        self.last = torch.nn.Linear(6, 5)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.weight.expand(len(x), 1, 6), x], 1) + self.position.weight
        n = self.norm(x)
        q, k, v = (one(n).reshape(len(x), 13, 2, 3).transpose(1, 2)
                   for one in (self.q, self.k, self.v))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(len(x), 13, 6))
        return self.last(x[:, 0])


def print_steps(network):
    with torch.no_grad():
        for number, parameter in enumerate(network.parameters()):
            parameter.copy_(made(number + 1, *parameter.shape) / 2)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    loss_of = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    for step in range(3):
        x = made(20 + step, 7, 2, 5, 4)
        labels = (made_labels(7, 5) + step) % 5
        optimizer.zero_grad()
        loss = loss_of(network(x), labels)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 0.5)
        optimizer.step()
        print(f"loss {loss.item():.17g}, norm {norm.item():.17g}")


print_steps(Excited())
print_steps(Seen())
print_steps(torch.nn.Sequential(
    torch.nn.Conv2d(2, 6, 3, padding=1), torch.nn.BatchNorm2d(6), torch.nn.ReLU(),
    torch.nn.MaxPool2d(3, stride=2, padding=1), torch.nn.Conv2d(6, 4, 3, padding=2, dilation=2),
    torch.nn.AvgPool2d(2, stride=1, padding=1, count_include_pad=False),
    torch.nn.Conv2d(4, 3, 2), torch.nn.Flatten(), torch.nn.Linear(18, 5)))
network = torch.nn.Sequential(
    torch.nn.Conv2d(2, 6, 3, padding=1), torch.nn.BatchNorm2d(6), torch.nn.ReLU(),
    torch.nn.Conv2d(6, 4, 2), torch.nn.ReLU(), torch.nn.Conv2d(4, 3, 3, padding=1),
    torch.nn.Flatten(), torch.nn.Linear(36, 7), torch.nn.ReLU(), torch.nn.Linear(7, 5))
print_steps(network)
for name in ("0.weight", "1.weight", "3.weight", "5.bias", "7.weight", "9.bias"):
    parameter = dict(network.named_parameters())[name]
    print(f"{name}: {parameter.square().sum().item():.17g}")
print(f"running_mean: {network[1].running_mean.square().sum().item():.17g}, "
      f"running_var: {network[1].running_var.square().sum().item():.17g}")
