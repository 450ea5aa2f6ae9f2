"""Patch points in PyTorch, one part of it per module. Loading them loads no torch: they wait for the program to do so.

- `module.module_call`: outermost calls of modules (models, losses), none inside backward
- `backward.backward`: `Tensor.backward` and `torch.autograd.backward`, outermost
- `optimizer.optimizer_step`: steps of optimizers, outermost
- `optimizer.scaler_step`: `GradScaler.step`, which may skip the optimizer's step
- `optimizer.scaler_scale`: `GradScaler.scale`, which makes what goes into the backward pass of a loss
- `transfer.tensor_to`: tensors that the program moves: `.to(device)`, `.cuda()`
- `copy.tensor_copy`: tensors on a device that the program fills from the host: `copy_`
- `save`: checkpoints being written
- `collectives`: communication between ranks, and the making of distributed models
- `loader`: iteration over a `DataLoader`, batches with their indices, fetching in workers
"""
