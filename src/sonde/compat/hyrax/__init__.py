"""Hyrax's names on top of Sonde's pipeline: `import sonde.compat.hyrax as hyrax`. Needs the extra `sonde-ml[pipeline]`.

`docs/howto/hyrax.md` says what is the same, what differs and what is not offered.
"""

from __future__ import annotations

from sonde.compat.hyrax import trace
from sonde.compat.hyrax.classes import HyraxAutoencoder, HyraxDataset, HyraxRandomDataset, hyrax_model
from sonde.compat.hyrax.hyrax import Hyrax

__all__ = ["Hyrax", "HyraxAutoencoder", "HyraxDataset", "HyraxRandomDataset", "hyrax_model", "trace"]
