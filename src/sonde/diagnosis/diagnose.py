"""The verdict on a run: runs every rule, in an explicit order, and ranks the findings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sonde import config
from sonde.diagnosis.custom.process import ask_apart
from sonde.diagnosis.facts import Facts, gather
from sonde.diagnosis.policy import Policy
from sonde.diagnosis.rules import RULES
from sonde.finding import INFO, SEVERITIES, Finding

if TYPE_CHECKING:
    from sonde.analysis.run import Run


@dataclass(frozen=True)
class Diagnosis:
    """The verdict, and all findings, the gravest first; the first of them is the verdict."""

    verdict: Finding
    findings: list[Finding]
    facts: Facts
    policy: Policy
    problems: list[str] = field(default_factory=list)  # with rules of one's own


# What a training shows that learns badly.
_BAD = ("VANISHING_GRADIENTS", "EXPLODING_GRADIENTS", "UPDATE_RATIO", "LOSS_SPIKE", "LOSS_NOT_DECREASING")
# What explains what: the finding on the left stands before those on the right, whatever they weigh, if it is more than a note.
EXPLAINS = {
    "KILLED": ("CRASHED", "MEMORY_CREEP", "MEMORY_PRESSURE"),
    "HUNG": ("KILLED", "CRASHED"),
    "WORKER_STARTUP": ("INPUT_BOUND", "STEP_SPIKES"),
    "SLOW_FILE": ("SLOW_ITEMS", "INPUT_BOUND", "STEP_SPIKES", "INPUT_STRAGGLER"),
    "SMALL_READS": ("INPUT_BOUND", "STEP_SPIKES"),
    "FILE_REOPENED": ("INPUT_BOUND", "SMALL_READS", "STEP_SPIKES"),
    "COLD_READS": ("INPUT_BOUND", "STEP_SPIKES"),
    "SLOW_ITEMS": ("INPUT_BOUND", "STEP_SPIKES", "INPUT_STRAGGLER"),
    "GC_PAUSES": ("STEP_SPIKES", "RESIDUAL_HEAVY", "COMPUTE_BOUND"),
    "STEP_DRIFT": ("STEP_SPIKES",),
    "RECOMPILING": ("STEP_SPIKES", "COMPUTE_BOUND"),
    "INPUT_BOUND": ("STEP_SPIKES", "GPU_UNDERUSED"),
    "H2D_BOUND": ("GPU_UNDERUSED",),
    "COMM_BOUND": ("GPU_UNDERUSED",),
    "RESIDUAL_HEAVY": ("GPU_UNDERUSED",),
    "GPU_THROTTLED": ("GPU_IMBALANCE", "COMPUTE_STRAGGLER", "STEP_DRIFT", "STEP_SPIKES"),
    "GPU_IMBALANCE": ("GPU_UNDERUSED",),
    "INPUT_STRAGGLER": ("COMM_BOUND", "STRAGGLER", "STEP_SPIKES", "GPU_IMBALANCE"),
    "COMPUTE_STRAGGLER": ("COMM_BOUND", "STRAGGLER", "STEP_SPIKES", "GPU_IMBALANCE"),
    "STRAGGLER": ("STEP_SPIKES",),
    "CPU_OVERSUBSCRIBED": ("STEP_SPIKES", "STRAGGLER", "COMPUTE_STRAGGLER", "COMM_BOUND"),
    "LEARNING_RATE": (*_BAD, "LAYER_NOT_LEARNING"),
    "GRADIENT_ACCUMULATION": _BAD,
    "WEIGHTS_CHANGED": (*_BAD, "LAYER_NOT_LEARNING"),
    "ONE_CLASS": _BAD,
    "TRAINED_IN_EVALUATION_MODE": ("LOSS_NOT_DECREASING", "OVERFITTING"),
    "DEAD_RELU": (*_BAD, "LAYER_NOT_LEARNING"),
    "SATURATED": (*_BAD, "LAYER_NOT_LEARNING"),
    "LAYER_NOT_LEARNING": ("VANISHING_GRADIENTS", "UPDATE_RATIO", "LOSS_NOT_DECREASING"),
    "VANISHING_GRADIENTS": ("UPDATE_RATIO", "LOSS_NOT_DECREASING"),
    "EXPLODING_GRADIENTS": ("UPDATE_RATIO", "LOSS_SPIKE", "LOSS_NOT_DECREASING"),
    "UPDATE_RATIO": ("LOSS_SPIKE", "LOSS_NOT_DECREASING"),
    "MEMORY_CREEP": ("MEMORY_PRESSURE", "STEP_DRIFT"),
}
# What a step spends too much on; if it grew to that, the growing explains it.
OF_PHASE = {"input_wait": "INPUT_BOUND", "residual": "RESIDUAL_HEAVY", "communication": "COMM_BOUND"}
DOUBLED = 0.5  # the score of a drift that made steps twice as long


def diagnose(run: Run, policy: Policy | None = None) -> Diagnosis:
    """Find out what is wrong with a run, and what to do first."""
    policy = policy or Policy.load()
    facts = gather(run, policy)
    findings = apply_rules(facts, policy)
    files = config.load_leniently()[0].rules
    if not files:
        return Diagnosis(findings[0], findings, facts, policy)
    own = ask_apart(run.path, files)
    findings = ranked(findings + own.findings)
    return Diagnosis(findings[0], findings, facts, policy, own.problems)


def apply_rules(facts: Facts, policy: Policy) -> list[Finding]:
    """What the rules find in the facts, the gravest first; never empty."""
    found = [finding for rule in RULES if (finding := rule.find(facts, policy)) is not None]
    if any(one.kind != "BALANCED" and one.evidence["score"] is not None for one in found):
        found = [one for one in found if one.kind != "BALANCED"]
    return ranked(found)


def ranked(findings: list[Finding]) -> list[Finding]:
    """In order: failures before speed, the graver first, then by what they cost; causes before what they explain."""
    place = {rule.kind: number for number, rule in enumerate(RULES)}
    left = sorted(findings, key=lambda one: (_weight(one), place.get(one.kind, len(place))))
    done: list[Finding] = []
    while left:
        done.append(next((one for one in left if not _explained(one, left)), left[0]))
        left.remove(done[-1])
    return done


def _weight(finding: Finding) -> tuple[int, int, float]:
    score = finding.evidence.get("score")
    failure = finding.evidence.get("failure") is True and finding.severity != INFO
    cost = -float(score) * finding.confidence if isinstance(score, int | float) else 1.0
    return not failure, -SEVERITIES.index(finding.severity), cost


def _explained(finding: Finding, others: list[Finding]) -> bool:
    return any(one.severity != INFO and explains(one, finding) and not _later(one, finding) for one in others)


def explains(cause: Finding, finding: Finding) -> bool:
    """Whether one finding is the cause of another."""
    if cause.kind == "STEP_DRIFT" and float(cause.evidence["score"]) >= DOUBLED:
        return finding.kind in (*EXPLAINS[cause.kind], OF_PHASE.get(cause.evidence["phase"]))
    if cause.kind == "NON_FINITE" and cause.evidence["stopped"]:  # the watch itself has ended the program
        return finding.kind == "CRASHED"
    return finding.kind in EXPLAINS.get(cause.kind, ())


def _later(cause: Finding, finding: Finding) -> bool:
    """A failure that is no more than a warning came after another one, and is none of its causes."""
    milder = SEVERITIES.index(cause.severity) < SEVERITIES.index(finding.severity)
    return milder and cause.evidence.get("failure") is True
