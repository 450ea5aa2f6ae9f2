"""HUNG: after 60 steps the loop waits for a lock that it holds itself."""

from __future__ import annotations

import threading

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
net = perceptron(hidden=256)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
lock = threading.Lock()
lock.acquire()
for number, (points, classes) in enumerate(DataLoader(Points(2400), batch_size=16, shuffle=True)):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
    if number == 60:
        lock.acquire()
