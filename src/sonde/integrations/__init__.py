"""Training frameworks, one per module. `sonde run` needs none of them; they add detail for scripts that can be edited.

- `huggingface`: `SondeTrainer` and `SondeCallback` for transformers
- `lightning`: `SondeCallback` for lightning and pytorch_lightning
"""
