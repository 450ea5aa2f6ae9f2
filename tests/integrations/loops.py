"""Tiny trainings with Hugging Face and Lightning: random models, made-up data, nothing from the network."""

from __future__ import annotations

import hashlib
from typing import Any

import torch


class Words(torch.utils.data.Dataset[Any]):
    """Sixteen sentences of eight words, and a label for each."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(index)
        words = torch.randint(0, 50, (8,), generator=generator)
        return {"input_ids": words, "attention_mask": torch.ones(8, dtype=torch.long), "labels": index % 2}


def bert() -> Any:
    """A classifier of sentences with two layers."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16, num_labels=2,
    )  # fmt: skip
    return BertForSequenceClassification(config)


def arguments(folder: Any, **more: Any) -> Any:
    """Two epochs of 16 sentences, 2 in a micro-batch, 4 of those in a step: two steps in an epoch."""
    from transformers import TrainingArguments

    usual: dict[str, Any] = {
        "output_dir": str(folder), "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4,
        "num_train_epochs": 2, "use_cpu": True, "report_to": [], "save_strategy": "no", "disable_tqdm": True,
        "logging_strategy": "no", "seed": 1,
    }  # fmt: skip
    return TrainingArguments(**(usual | more))


def digest(model: Any) -> str:
    """Of all parameters, bit by bit."""
    found = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        found.update(name.encode() + value.detach().cpu().numpy().tobytes())
    return found.hexdigest()


def lightning_parts(library: Any) -> tuple[Any, Any, Any]:
    """A module of this library, and its data for training and for validation: two batches of each... of two items."""

    class Net(library.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))

        def training_step(self, batch: Any, _index: int) -> Any:
            return self.net(batch[0]).square().mean()

        def validation_step(self, batch: Any, _index: int) -> Any:
            self.net(batch[0])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    torch.manual_seed(0)
    net = Net()
    data = torch.utils.data.TensorDataset(torch.randn(16, 4))
    return net, torch.utils.data.DataLoader(data, batch_size=2), torch.utils.data.DataLoader(data, batch_size=8)


def lightning_trainer(library: Any, folder: Any, **more: Any) -> Any:
    """Two epochs of eight micro-batches, four of them in a step: two steps in an epoch."""
    usual: dict[str, Any] = {
        "max_epochs": 2, "accumulate_grad_batches": 4, "accelerator": "cpu", "devices": 1, "logger": False,
        "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False,
        "default_root_dir": str(folder),
    }  # fmt: skip
    return library.Trainer(**(usual | more))


def lightning_pair(library: Any, every: int = 1) -> Any:
    """A module with two optimizers, of which the first one updates in every so many batches, and the other one in each."""

    class Pair(library.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.first, self.other = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, index: int) -> None:
            for net, optimizer in zip((self.first, self.other), self.optimizers(), strict=True):
                if net is self.other or index % every == 0:
                    optimizer.zero_grad()
                    self.manual_backward(net(batch[0]).square().mean())
                    optimizer.step()

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(net.parameters(), lr=0.1) for net in (self.first, self.other)]

    return Pair()
