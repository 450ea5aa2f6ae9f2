"""Training frameworks, one per module. None is needed for `sonde run`: they say more, for those who edit their script.

- `huggingface`: `SondeTrainer` and `SondeCallback` for transformers
- `lightning`: `SondeCallback` for lightning and pytorch_lightning
"""
