"""Scripts about learning, and what is wrong with each; None: nothing. The thresholds were frozen between the two halves."""

from __future__ import annotations

FIRST: dict[str, str | None] = {
    "vanishing_sigmoid": "VANISHING_GRADIENTS",
    "exploding_weights": "EXPLODING_GRADIENTS",
    "dead_bias": "DEAD_RELU",
    "saturated_inputs": "SATURATED",
    "still_optimizer": "LAYER_NOT_LEARNING",
    "update_large": "UPDATE_RATIO",
    "plateau_labels": "LOSS_NOT_DECREASING",
    "spike_item": "LOSS_SPIKE",
    "overfitting_small": "OVERFITTING",
    "rate_steps": "LEARNING_RATE",
    "accumulate_zero": "GRADIENT_ACCUMULATION",
    "oneclass_sorted": "ONE_CLASS",
    "evaluated_dropout": "EVALUATED_IN_TRAINING_MODE",
    "trained_evaluation": "TRAINED_IN_EVALUATION_MODE",
    "changed_average": "WEIGHTS_CHANGED",
    "healthy_classifier": None,
    "healthy_convolutions": None,
    "healthy_adversarial": None,
    "healthy_policy": None,
    "healthy_language": None,
    "healthy_frozen": None,
    "healthy_tuning": None,
    "healthy_regression": None,
    "healthy_autoencoder": None,
    "healthy_accumulation": None,
}
SECOND: dict[str, str | None] = {}
NAMED = {"spike_item": "1234"}  # what the verdict must also name
