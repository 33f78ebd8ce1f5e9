"""The plain loop that the engine is measured against: modules, torch.optim.SGD, preloaded float tensors, NCHW."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PlainLeNet(nn.Module):
    """The engines' LeNet with ordinary dropout modules and a frozen classifier."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 20, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(20, 50, 5),
            nn.Dropout2d(0.5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(1250, 256),
            nn.BatchNorm1d(256),
            nn.Dropout(0.5),
        )
        self.classifier = nn.Linear(256, classes).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x))


def objective(logits: Tensor, labels: Tensor) -> Tensor:
    """SHOT's objective on fixed labels."""
    p = logits.softmax(1)
    entropy = -(p * (p + 1e-5).log()).sum(1).mean()
    diversity = -(p.mean(0) * (p.mean(0) + 1e-5).log()).sum()
    return entropy - diversity + 0.1 * F.cross_entropy(logits, labels)


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int, batch: int = 64) -> None:
    """Train one client for some epochs, as a plain script would; ``batch``: images per step."""
    optimiser = torch.optim.SGD(model.features.parameters(), 1e-3, momentum=0.9, weight_decay=1e-3)
    model.train()
    for _ in range(epochs):
        for indices in torch.randperm(len(images), device=images.device).split(batch):
            loss = objective(model(images[indices]), labels[indices])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
