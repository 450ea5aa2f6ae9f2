"""`sonde run` brings Sonde into every Python that a program starts, whoever starts it, without an edit."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
import textwrap

import pytest
from tests.integration.conftest import Programs
from tests.integration.launching import HERE, TRAINING, exits, run, sampled, script

from sonde.analysis.run import open_run

HERES = "select count(*), count(distinct pid) from events where name = 'here'"
UPDATES = "select count(*), count(distinct pid) from events where cat = 'probe' and name = 'update'"


# ── who starts it ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_script_is_recorded_without_an_edit(programs: Programs) -> None:
    """The bootstrap is there before the first line of the script."""
    done = run(programs, str(script(programs.folder, HERE)))
    assert programs.rows(HERES) == [(1, 1)]
    assert programs.only.name.split("-")[2] == "train"
    assert str(programs.only.name) in done.stderr


def test_a_module_is_recorded(programs: Programs) -> None:
    """`-m package.module` as Python has it, and the run has its name."""
    (programs.folder / "package").mkdir()
    script(programs.folder / "package", HERE, "train.py")
    run(programs, "-q", "-m", "package.train")
    assert programs.rows(HERES) == [(1, 1)]
    assert "-package.train-" in programs.only.name


def test_a_python_that_a_shell_script_starts_is_recorded(programs: Programs) -> None:
    """Whatever stands between: the environment goes through it."""
    script(programs.folder, HERE)
    shell = script(
        programs.folder, f"set -e\n{sys.executable} train.py\n{sys.executable} train.py\nexit 4\n", "start.sh"
    )
    run(programs, "-q", "bash", str(shell), code=4)
    assert programs.rows(HERES) == [(2, 2)]


def test_a_program_that_replaces_itself_has_ended_each_time(programs: Programs) -> None:
    """For the system it stays one process: nobody killed the program that was there first."""
    again = "import os\nif len(sys.argv) < 2:\n    os.execv(sys.executable, [sys.executable, __file__, 'again'])\n"
    run(programs, "-q", str(script(programs.folder, HERE + again)))
    found = programs.rows("select state, reason, events > 0 from processes where role = 'main' order by start_ns")
    assert found == [("ended", "replaced", True), ("ended", "exit", True)]
    assert programs.rows("select count(distinct pid) from processes where role = 'main'") == [(1,)]


def test_ranks_of_torchrun_are_recorded_with_their_exit_codes(programs: Programs) -> None:
    """Each rank is a trainer, and how each ended is known although torchrun answers 1 for all."""
    pytest.importorskip("torch")
    main = """
        import time
        train()
        if os.environ["RANK"] == "0":
            open("trained", "w").close()
        else:  # torchrun ends the other rank when this one fails: not before it has trained
            end = time.monotonic() + 60
            while not os.path.exists("trained") and time.monotonic() < end:
                time.sleep(0.05)
            sys.exit(7)
    """
    path = script(programs.folder, textwrap.dedent(TRAINING) + textwrap.dedent(main))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run(programs, "-q", *torchrun, str(path), code=1)
    ranks = {facts["rank"]: facts["pid"] for facts in programs.processes if facts["role"] == "trainer"}
    assert sorted(ranks) == [0, 1]
    assert programs.rows(UPDATES) == [(6, 2)]
    assert exits(programs)[ranks[1]] == (7, None)
    assert exits(programs)[ranks[0]] in ((0, None), (None, 15))  # torchrun may end it when it sees the other one fail
    assert [facts["role"] for facts in programs.processes].count("launcher") == 2


@pytest.fixture(scope="module")
def spawned(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """Two ranks that were spawned; the loader of the first one spawned a worker."""
    pytest.importorskip("torch")
    programs = Programs(tmp_path_factory.mktemp("spawned"))
    main = """
        def rank(number):
            train(number, None if number else "spawn")

        if __name__ == "__main__":
            torch.multiprocessing.spawn(rank, nprocs=2)
    """
    run(programs, "-q", str(script(programs.folder, textwrap.dedent(TRAINING) + textwrap.dedent(main))))
    return programs


def test_ranks_of_multiprocessing_spawn_are_recorded(spawned: Programs) -> None:
    """`torch.multiprocessing.spawn` starts trainers with ranks of their own, and their steps are there."""
    assert spawned.rows(UPDATES) == [(6, 2)]
    assert {facts["rank"] for facts in spawned.processes if facts["role"] == "trainer"} == {0, 1}


def test_a_spawned_worker_of_a_loader_is_recorded(spawned: Programs) -> None:
    """It says which one it is, and how it ended is known as of all the others."""
    (worker,) = [facts for facts in spawned.processes if facts["role"] == "worker"]
    assert (worker["worker"], worker["rank"]) == (0, 0)
    assert spawned.rows(f"select count(*) from events where name = 'item' and pid = {worker['pid']}") == [(12,)]
    assert set(exits(spawned).values()) == {(0, None)}


def test_a_program_inside_a_recorded_one_joins_its_run(programs: Programs) -> None:
    """`sonde run` in a script that is recorded makes no second run."""
    inner = script(programs.folder, HERE, "inner.py")
    command = [sys.executable, "-m", "sonde", "run", str(inner)]
    outer = script(programs.folder, f"{HERE}import subprocess\nsubprocess.run({command!r}, check=True)\n", "outer.py")
    run(programs, "-q", str(outer))
    assert programs.rows(HERES) == [(2, 2)]


# ── what the program sees ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_program_gets_its_arguments_and_no_others(programs: Programs) -> None:
    """Everything behind the script belongs to it, also what looks like an option of Sonde, and `--`."""
    path = script(programs.folder, "import sys; print(sys.argv[1:])")
    words = ["--name", "x", "-q", "--", "--disable"]
    assert run(programs, "-q", "--", str(path), *words).stdout.strip() == str(words)


def test_the_path_of_the_program_is_as_usual(programs: Programs) -> None:
    """The folder with the bootstrap is gone from sys.path when the program runs."""
    path = script(programs.folder, "import sys; print(sys.path)")
    bare = subprocess.run(
        [sys.executable, str(path)], env=programs.environment(None), capture_output=True, text=True, check=True
    )
    assert run(programs, str(path)).stdout == bare.stdout


def test_nothing_is_imported_that_the_program_does_not_import(programs: Programs) -> None:
    """Of other people's packages, none."""
    path = script(
        programs.folder, "import sys; print({'torch', 'numpy', 'psutil', 'click', 'rich', 'duckdb'} & set(sys.modules))"
    )
    assert run(programs, str(path)).stdout.strip() == "set()"


def test_another_sitecustomize_still_runs(programs: Programs) -> None:
    """The one that Python would have found without ours is run, and is the module of that name."""
    (programs.folder / "site").mkdir()
    script(programs.folder / "site", "who = 'theirs'", "sitecustomize.py")
    path = script(programs.folder, HERE + "import sitecustomize; print(sitecustomize.who)")
    places = os.pathsep.join([str(programs.folder / "site"), programs.environment(None)["PYTHONPATH"]])
    assert run(programs, "-q", str(path), env={"PYTHONPATH": places}).stdout.strip() == "theirs"
    assert programs.rows(HERES) == [(1, 1)]


def test_a_sitecustomize_that_fails_fails_as_usual(programs: Programs) -> None:
    """Python tells of it and runs on; the recording is not touched."""
    (programs.folder / "site").mkdir()
    script(programs.folder / "site", "raise ValueError('theirs')", "sitecustomize.py")
    places = os.pathsep.join([str(programs.folder / "site"), programs.environment(None)["PYTHONPATH"]])
    done = run(programs, "-q", str(script(programs.folder, HERE)), env={"PYTHONPATH": places})
    assert "ValueError: theirs" in done.stderr
    assert programs.rows(HERES) == [(1, 1)]


def test_options_reach_the_processes_that_record(programs: Programs) -> None:
    """Which steps and ranks are recorded is told to each process by its environment."""
    path = script(programs.folder, "import os; print({k: v for k, v in os.environ.items() if k in K})".replace(
        "K", "('SONDE_STEPS', 'SONDE_EVERY', 'SONDE_RANKS', 'SONDE_DEEP')"
    ))  # fmt: skip
    done = run(programs, "--steps", "1:9", "--every", "2", "--ranks", "0,3", "--deep", "--name", "odd name!", str(path))
    assert eval(done.stdout) == {"SONDE_STEPS": "1:9", "SONDE_EVERY": "2", "SONDE_RANKS": "0,3", "SONDE_DEEP": "1"}
    assert "-odd-name-" in programs.only.name


# ── what it cannot see ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_a_python_that_ignores_the_environment_is_told_at_once(programs: Programs, option: str) -> None:
    """The program runs; what cannot be seen of it is said."""
    done = run(programs, sys.executable, option, "-c", "print('ran')")
    assert done.stdout == "ran\n"
    assert f"-c: python {option} " in done.stderr


def test_children_that_sonde_does_not_reach_are_told(programs: Programs) -> None:
    """A child with -I, and one with a cleaned environment, are named at the end and in the run."""
    run_them = f"""
        import subprocess, sys
        deaf = subprocess.Popen([sys.executable, "-I", *{sampled(programs)}])
        clean = subprocess.Popen([sys.executable, *{sampled(programs)}], env={{"PATH": "/usr/bin:/bin"}})
        print(deaf.pid, clean.pid)
        deaf.wait(), clean.wait()
    """
    done = run(programs, str(script(programs.folder, run_them)))
    deaf, clean = map(int, done.stdout.split())
    rows = programs.rows("select key, args->>'reason' from events where cat = 'process' and name = 'unseen'")
    assert {key for key, _ in rows} == {deaf, clean}
    assert f"process {deaf} " in done.stderr
    assert f"process {clean} " in done.stderr


def test_a_program_that_was_given_no_environment_is_told(programs: Programs) -> None:
    """Also if it is the program itself, which was another one when it was started."""
    code = f"import os, sys; print(os.getpid()); sys.argv = {sampled(programs)}; exec(open(sys.argv[0]).read())"
    done = run(programs, "env", "-i", sys.executable, "-c", code)
    assert f"Cannot record process {int(done.stdout)} (" in done.stderr
    assert "its own environment" in done.stderr
    assert "no Python process that Sonde could record" not in done.stderr


def test_another_venv_is_named(programs: Programs) -> None:
    """Whether it is the program itself, or a shell starts it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "bare"], cwd=programs.folder, check=True, timeout=60)
    named = f"It ran with {programs.folder}/bare/bin/python, "
    assert named in run(programs, "bare/bin/python", "-c", "pass").stderr
    line = f"{shlex.join(['bare/bin/python', *sampled(programs)])}; true"
    assert named in run(programs, "bash", "-c", line).stderr
    line = f"{shlex.join([sys.executable, *sampled(programs)])}; true"
    assert "no Python process that Sonde could record" in run(programs, "bash", "-c", line).stderr


@pytest.mark.parametrize("folder", ["nothing-here", "."])
def test_a_run_that_cannot_be_joined_is_told_with_the_variable_that_names_it(programs: Programs, folder: str) -> None:
    """Another --dir would not help."""
    done = run(programs, "-c", "print('ran')", env={"SONDE_RUN": str(programs.folder / folder)})
    assert done.stdout == "ran\n"
    assert "SONDE_RUN names that folder" in done.stderr
    assert "--dir" not in done.stderr


def test_a_program_of_which_nothing_was_recorded_is_told(programs: Programs) -> None:
    """Nobody should look for numbers that are not there."""
    assert "The program itself was not recorded" in run(programs, "-c", "pass").stderr


def test_of_a_python_that_sonde_cannot_reach_nobody_says_what_it_did(programs: Programs) -> None:
    """It may have trained."""
    told = run(programs, sys.executable, "-I", "-c", "pass").stderr
    assert "python -I ignores the environment" in told
    assert "The program itself was not recorded.\n" in told
    assert "trained" not in told


# ── what the launcher adds ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_launcher_samples_the_tree_and_stays_small(programs: Programs) -> None:
    """Memory of the program and of its child, facts of the host; the launcher itself takes less than 40 MB."""
    code = f"""
        import os, subprocess, sys
        child = subprocess.Popen([sys.executable, *{sampled(programs)}])
        print(os.getpid(), child.pid)
        child.wait()
        with open(f"/proc/{{os.getppid()}}/status") as file:
            print(*(line.split()[1] for line in file if line.startswith("VmHWM")))
    """
    done = run(programs, str(script(programs.folder, code)))
    pid, child, peak = map(int, done.stdout.split())
    assert peak < 40_000  # kB
    memory = dict(
        programs.rows("select key, max(value) from events where cat = 'memory' and name = 'rss' group by key")
    )
    assert {pid, child} <= set(memory)
    assert all(value > 2**20 for value in memory.values())
    host = {name for (name,) in programs.rows("select distinct name from events where cat = 'system' and key = 0")}
    assert {"cpu", "ram.used", "ram.total"} <= host
    assert programs.processes[0]["role"] == "launcher"


def test_processes_that_the_program_leaves_behind_are_told(programs: Programs) -> None:
    """The end of the program is the end of `sonde run`; what still runs is named."""
    code = f"""
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        print(child.pid, flush=True)
        subprocess.run([sys.executable, *{sampled(programs)}, str(child.pid)])
    """
    done = run(programs, str(script(programs.folder, code)))
    os.kill(int(done.stdout), 9)
    assert f"still running: {done.stdout.strip()}." in done.stderr


# ── off ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("words", "env"), [(["--disable"], {}), ([], {"SONDE": "0"})], ids=["option", "variable"])
def test_switched_off_nothing_is_there(programs: Programs, words: list[str], env: dict[str, str]) -> None:
    """The program takes the place of the launcher: no second process, no module, no folder; also if it calls init()."""
    code = """
        import os, sys
        print(os.getppid() == int(sys.argv[1]), "sonde" in sys.modules, any("boot" in p for p in sys.path))
        import sonde
        print(sonde.init().path)
        sys.exit(3)
    """
    done = run(programs, *words, str(script(programs.folder, code)), str(os.getpid()), code=3, env=env)
    assert done.stdout.split() == ["True", "False", "False", "None"]
    assert done.stderr == ""
    assert not programs.dir.exists()


# ── bad input ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_script_that_is_not_there_is_told_with_the_nearest(programs: Programs) -> None:
    """As Python would answer, with exit code 2, and no run is made."""
    script(programs.folder, "pass", "train.py")
    assert "Did you mean train.py?" in run(programs, "trian.py", code=2).stderr
    assert not programs.dir.exists()


def test_a_command_that_is_not_there_is_told(programs: Programs) -> None:
    """As a shell would answer, with exit code 127."""
    assert "Command not found: torchnur" in run(programs, "torchnur", code=127).stderr
    assert not programs.dir.exists()


def test_a_file_that_is_no_program_is_told(programs: Programs) -> None:
    """As a shell would answer, with exit code 126, and how to start it; also if it only looks like one."""
    path = script(programs.folder, "echo", "start.sh")
    assert "sonde run bash ./start.sh" in run(programs, "./start.sh", code=126).stderr
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    assert "Cannot start" in run(programs, "./start.sh", code=126).stderr
    assert programs.runs == []


def test_a_typo_in_an_option_is_no_program(programs: Programs) -> None:
    """Nothing is started, and the options are named."""
    script(programs.folder, "print('ran')")
    done = run(programs, "--nmae", "x", "train.py", code=2)
    assert "Unknown option --nmae. Did you mean '--name'?" in done.stderr
    assert "--blackbox" in done.stderr
    assert "ran" not in done.stdout


def test_a_wrong_value_is_a_usage_error(programs: Programs) -> None:
    """Before the program is started."""
    assert "100:200" in run(programs, "--steps", "9:3", "-c", "print('ran')", code=2).stderr


def test_a_script_with_a_syntax_error_is_python_s_business(programs: Programs) -> None:
    """Its message and its exit code are Python's; the run says what happened."""
    done = run(programs, str(script(programs.folder, "def f(:\n")), code=1)
    assert "SyntaxError" in done.stderr
    main = next(facts for facts in programs.processes if facts["role"] == "main")
    assert main["end"]["exception"] == "SyntaxError"
    assert exits(programs)[main["pid"]] == (1, None)


def test_a_script_with_a_very_long_name_is_recorded(programs: Programs) -> None:
    """The run folder has a part of it."""
    run(programs, "-q", str(script(programs.folder, HERE, "x" * 200 + ".py")))
    assert programs.rows(HERES) == [(1, 1)]


def test_where_nothing_can_be_written_the_program_runs_all_the_same(programs: Programs) -> None:
    """What is wrong is said, and the exit code is the program's."""
    (programs.folder / "file").write_text("")
    done = run(programs, "--dir", "file/runs", "-c", "print('ran'); raise SystemExit(3)", code=3)
    assert done.stdout == "ran\n"
    assert "Not recording" in done.stderr
    assert "--dir" in done.stderr


def test_no_home_and_no_working_folder_are_no_trouble(programs: Programs) -> None:
    """Only the folder for runs is needed."""
    gone = programs.folder / "gone"
    gone.mkdir()
    start = f"import os, sys\nos.rmdir({str(gone)!r})\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    path = script(programs.folder, HERE)
    env = {name: value for name, value in programs.environment(None).items() if name != "HOME"}
    command = [sys.executable, "-c", start, "-m", "sonde", "run", str(path)]
    done = subprocess.run(command, env=env, cwd=gone, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert programs.rows(HERES) == [(1, 1)]


def test_two_runs_at_once_do_not_meet(programs: Programs) -> None:
    """Each has a folder of its own."""
    path = script(programs.folder, HERE + "import time; time.sleep(0.5)")
    command = [sys.executable, "-m", "sonde", "run", "-q", str(path)]
    started = [subprocess.Popen(command, env=programs.environment(None), cwd=programs.folder) for _ in range(2)]
    assert [one.wait(timeout=60) for one in started] == [0, 0]
    assert len(programs.runs) == 2


def test_a_program_that_was_killed_is_a_run_that_died(programs: Programs) -> None:
    """Though its launcher ended as it should."""
    path = script(programs.folder, HERE + "import os\nos.kill(os.getpid(), 9)\n")
    run(programs, "-q", str(path), code=137)
    (folder,) = programs.dir.iterdir()
    with open_run(folder) as found:
        assert found.state == "died"
