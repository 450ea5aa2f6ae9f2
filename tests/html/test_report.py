"""The page of a report: what is on it, that it is safe, small, and keeps what stands out."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from tests.html.parsing import Parsed
from tests.views.runs import EVIL, SLOW, apart, ranks, with_slow_item

from sonde.analysis.run import open_run
from sonde.html import is_page, page
from sonde.html.charts import lines
from sonde.store.record import COUNTER
from sonde.testing import MS, START_NS, BuiltRecord, build_run, build_training, training_processes
from sonde.views.charts import Line, charts, thinned
from sonde.views.report import report

ALLOWED = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "header",
        "section",
        "footer",
        "div",
        "span",
        "p",
        "b",
        "i",
    ),
    *("h1", "h2", "h3", "ul", "li", "pre", "details", "summary", "table", "thead", "tbody", "tr", "th", "td", "br"),
    *("svg", "path", "rect", "text"),
}


def page_of(path: Path) -> str:
    with open_run(path) as run:
        return page(report(run), charts(run))


def hostile(path: Path) -> str:
    """A page in which everything that a program names is hostile."""
    with open_run(with_slow_item(path)) as run:
        view, drawn = report(run), charts(run)
    evil = dataclasses.replace(view.verdict, kind=EVIL, severity=EVIL, why=EVIL, next=EVIL, evidence={EVIL: EVIL})
    about = dataclasses.replace(view.run, name=EVIL, id=EVIL, command=EVIL, ended=EVIL, hosts=[EVIL], notes=[EVIL])
    slowest = [
        dataclasses.replace(one, items=[dataclasses.replace(item, id=EVIL) for item in one.items])
        for one in view.steps.slowest
    ]
    memory = [dataclasses.replace(one, name=EVIL) for one in drawn.memory]
    changed = dataclasses.replace(
        view,
        verdict=evil,
        findings=[evil, evil],
        run=about,
        steps=dataclasses.replace(view.steps, slowest=slowest),
        layers=[dataclasses.replace(one, layer=EVIL, type=EVIL) for one in view.layers],
        memory=[dataclasses.replace(one, who=EVIL, host=EVIL) for one in view.memory],
        blind_spots=[dataclasses.replace(one, what=EVIL) for one in view.blind_spots],
    )
    return page(changed, dataclasses.replace(drawn, memory=memory))


# ── what is on it ──


def test_every_part_is_on_it(tmp_path: Path) -> None:
    """Verdict, breakdown, charts, slow steps with their items, memory, layers, and what is not known."""
    content = page_of(with_slow_item(tmp_path / "run"))
    words = Parsed(content).words
    for part in (
        *("Where the time of a step goes", "Step time by phase, over the run", "from the fastest to the slowest"),
        *(
            "Slowest steps",
            "Slowest items",
            "Memory",
            "Layers",
            "Cost of recording",
            "Not seen in this run",
            "Lost records",
        ),
        *(str(SLOW), "198 ms, worker 0", "body.first", "Evidence"),
    ):
        assert part in words


def spiky(path: Path) -> Path:
    """Three steps wait for a slow item; all others take 13 ms."""
    usual = {"input_wait": 3 * MS, "forward": 3 * MS, "backward": 5 * MS, "optimizer": MS, "residual": MS}
    return build_training(
        path,
        steps=60,
        workers=1,
        item_ns=lambda _, index: 200 * MS if index in (40, 100, 200) else MS // 2,
        phases=lambda _, step: usual | {"input_wait": 203 * MS if step in (10, 25, 50) else 3 * MS},
        loss=lambda step: 3.0 / (step + 1),
    )


def test_findings_of_one_cause_stand_in_the_box_of_the_verdict(tmp_path: Path) -> None:
    """Slow items make a training wait, and single steps long: that is one thing to mend."""
    content = page_of(spiky(tmp_path / "run"))
    assert content.count('class="finding') == 0
    caused = content.partition('class="caused"')[2].partition("</ul>")[0]
    assert "<b>INPUT_BOUND</b>" in caused
    assert "<b>STEP_SPIKES</b>" in caused


def test_no_chart_cuts_off_what_the_verdict_is_about(tmp_path: Path) -> None:
    """The scale reaches to the longest step."""
    content = page_of(spiky(tmp_path / "run"))
    assert "cut off" not in content
    assert ">200 ms</text>" in content


def test_a_column_that_is_cut_off_is_marked(tmp_path: Path) -> None:
    """One that is out of all proportion, such as a compilation."""
    path = build_training(
        tmp_path / "run", steps=60, phases=lambda _, step: {"forward": (1000 if step == 5 else 1) * MS}
    )
    content = page_of(path)
    assert 'class="cut"' in content
    assert "the longest is 1.00 s" in content


def test_steps_are_sorted_where_the_title_says_so(tmp_path: Path) -> None:
    """Over a long run there are ranges instead, under their own title."""
    short, long = page_of(spiky(tmp_path / "short")), page_of(build_training(tmp_path / "long", steps=1000))
    drawn = short.partition("from the fastest to the slowest")[2].partition("</section>")[0]
    took = [float(found) for found in re.findall(r"<title>step [\d,]+: ([\d.]+) ms", drawn)]
    assert len(took) == 60
    assert took == sorted(took)
    assert "from the fastest to the slowest" not in long
    assert "Step time distribution over the run" in long


def test_loss_cpu_and_disk_are_drawn(tmp_path: Path) -> None:
    """What was measured, each with its own unit."""
    counters = [
        BuiltRecord(name, "system", kind=COUNTER, start=START_NS + second * 1000 * MS, value=value * second, key=1000)
        for second in range(1, 4)
        for name, value in (("cpu", 20.0), ("disk.read", 5e6))
    ]
    processes = training_processes(steps=30, loss=lambda step: 3.0 / (step + 1))
    path = build_run(tmp_path / "run", [processes[0]._replace(records=[*processes[0].records, *counters])])
    words = Parsed(page_of(path)).words
    for part in ("Loss", "CPU", "Disk", "MB/s"):
        assert part in words


def test_evidence_is_written_for_people(tmp_path: Path) -> None:
    """Numbers with their units, and no JSON."""
    content = page_of(spiky(tmp_path / "run"))
    evidence = content.partition('class="evidence"')[2].partition("</details>")[0]
    assert "{&quot;" not in evidence
    assert re.search(
        r"median item</td><td class=\"text\"><div class=\"long\">[\d.]+ µs".replace("µ", "&#181;"), evidence
    )


def test_ranks_have_a_heat_map(tmp_path: Path) -> None:
    """One row for each of them, the slower one darker."""
    content = page_of(ranks(tmp_path / "run"))
    strips = re.findall(r'<div class="strip">.*?</div>', content)
    assert len(strips) == 2
    levels = [max(int(level) for level in re.findall(r'class="h(\d)"', strip)) for strip in strips]
    assert levels[1] > levels[0]


def test_the_head_says_that_trainings_are_separate(tmp_path: Path) -> None:
    """Their number stands where that of ranks would."""
    words = Parsed(page_of(apart(tmp_path / "run"))).words
    assert "3separate trainings" in words


def test_energy_that_nothing_measured_is_left_out(tmp_path: Path) -> None:
    """As on the card: most machines do not let a user read it."""
    assert "energy per step" not in page_of(with_slow_item(tmp_path / "run"))


def test_a_run_without_steps_has_a_page(tmp_path: Path) -> None:
    """With the verdict and without charts."""
    parsed = Parsed(page_of(build_run(tmp_path / "run", [])))
    assert "INSUFFICIENT_DATA" in parsed.words
    assert "svg" not in parsed.tags


# ── safe ──


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    """No element, no attribute and no control character comes from a name."""
    content = hostile(tmp_path / "run")
    parsed = Parsed(content)
    assert set(parsed.tags) <= ALLOWED
    assert not [name for name, _ in parsed.attributes if name.startswith("on") or name in ("src", "href", "style")]
    assert content.isascii()
    assert "\x1b" not in content
    assert parsed.words.count("<script>") > 5


def test_nothing_is_asked_of_the_network(tmp_path: Path) -> None:
    """No address, and a policy that would forbid it: the style alone is allowed, by its digest."""
    content = page_of(with_slow_item(tmp_path / "run"))
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', content)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert not re.search(r"https?://|url\(|@import", content)


# ── small ──


def test_ten_thousand_steps_take_less_than_500_kb(tmp_path: Path) -> None:
    """And a single slow step among them is not averaged away."""

    def phases(_rank: int, step: int) -> Mapping[str, int]:
        return {"forward": 3 * MS + step % 7 * 1000, "backward": 5 * MS, "optimizer": 900 * MS if step == 7777 else MS}

    content = page_of(
        build_training(tmp_path / "run", steps=10_000, ranks=2, phases=phases, rss=lambda _, step: 10**8 + step)
    )
    assert len(content) <= 500_000
    assert re.search(r"steps 7,750 to 7,799: p50 9.00 ms, .* to 908 ms", content)


def test_a_line_that_never_changes_has_a_scale_of_its_size() -> None:
    """A learning rate of 0.001 is not drawn between 0.001 and 1.001."""
    drawn = lines([Line("rate", "", [(0.0, 0.001), (1.0, 0.001)])], 10**9, "{:g}".format, from_zero=False)
    assert "0.002" in drawn
    assert "1.001" not in drawn


def test_a_thinned_line_keeps_its_extremes() -> None:
    """Of each stretch the least and the most stay, in their order."""
    time = np.arange(10_000)
    value = np.zeros(10_000)
    value[1234], value[5678] = 5.0, -5.0
    kept = dict(thinned(time, value, 100))
    assert (kept[1234], kept[5678]) == (5.0, -5.0)
    assert len(kept) <= 200
    assert list(kept) == sorted(kept)


def test_steps_with_wild_numbers_are_drawn_over_time(tmp_path: Path) -> None:
    """A program may count as it likes: then time is the axis."""
    from sonde.testing import training_processes

    (process,) = training_processes(steps=50)
    wild = [one._replace(step=None if one.step is None else (one.step * 7919) % 2**31) for one in process.records]
    with open_run(build_run(tmp_path / "run", [process._replace(records=wild)])) as run:
        drawn = charts(run)
    assert drawn.axis is not None
    assert drawn.axis.unit == "ns"
    assert sum(piece.steps for piece in drawn.pieces) == 50


# ── files ──


@pytest.mark.parametrize(("content", "expected"), [("<!DOCTYPE html>", False), ("", False)])
def test_only_its_own_pages_are_known_as_such(tmp_path: Path, content: str, expected: bool) -> None:
    """Another file is never written over."""
    path = tmp_path / "file"
    path.write_text(content)
    assert is_page(path, "report") is expected


def test_a_page_is_known_as_a_report(tmp_path: Path) -> None:
    """It says so at its beginning."""
    path = tmp_path / "file"
    path.write_text(page_of(build_run(tmp_path / "run", [])))
    assert is_page(path, "report")


def test_the_page_is_the_same_each_time(tmp_path: Path) -> None:
    """Nothing in it depends on when it was made."""
    path = with_slow_item(tmp_path / "run")
    assert page_of(path) == page_of(path)
