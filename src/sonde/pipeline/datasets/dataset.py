"""What a dataset is: a length, and a getter for each field. Any class that has them will do; this one helps to write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class Dataset:
    """A dataset of your own can derive from this.

    class Stars(sonde.pipeline.Dataset):
        defaults = {"scale": 1.0}                             # the keys of [data_set.Stars], with their defaults

        def __init__(self, config, data_location):
            super().__init__(config, data_location)
            self.files = sorted(Path(data_location).glob("*.npy"))

        def __len__(self):
            return len(self.files)

        def get_image(self, index):                           # an array, a number or a text
            return np.load(self.files[index]) * self.config["scale"]

        def get_object_id(self, index):
            return self.files[index].stem

    It may have `collate_<field>(samples)` or `collate(samples)` for fields that np.stack cannot put together, and
    `augment_<field>(value, index, seed)`. For workers that are spawned it has to be picklable.
    """

    defaults: ClassVar[Mapping[str, Any]] = {}  # if there are any, other keys are refused

    def __init__(self, config: Mapping[str, Any], data_location: str | None = None) -> None:
        """`config` is the table of this class, with `dataset_config` of the request over it."""
        self.config = config
        self.data_location = data_location

    def __len__(self) -> int:
        """How many items there are."""
        raise NotImplementedError(f"{type(self).__name__} has no __len__. Return the number of items from it.")
