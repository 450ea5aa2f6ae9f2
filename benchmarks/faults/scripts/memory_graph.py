"""MEMORY_CREEP: the running loss is added up with its whole graph, so that no activation is ever freed."""

from __future__ import annotations

import time

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
net = perceptron(hidden=512, depth=3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
total = torch.zeros(())
data = Points(512)
until = time.monotonic() + 9
steps = 0
while time.monotonic() < until or steps < 600:  # on a busy machine, too, memory must have grown
    for points, classes in DataLoader(data, batch_size=32, shuffle=True):
        with marked(net):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(points), classes)
            loss.backward(retain_graph=True)
            optimizer.step()
            total = total + loss
            steps += 1
