"""The configuration: defaults, file, program; every wrong key and type is refused, and told by name."""

from __future__ import annotations

import pickle
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomlkit
from hypothesis import given, settings, strategies as st

from sonde.errors import ConfigError
from sonde.pipeline.config import DEFAULTS, Config, _dotted, defaults

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/pipeline/config.md"
REQUEST = {"train": {"data": {"dataset_class": "RandomDataset", "primary_id_field": "object_id"}}}


def test_file_goes_before_the_defaults_and_the_program_before_both(tmp_path: Path) -> None:
    """Each source overrides the ones below it, key by key."""
    file = tmp_path / "my.toml"
    file.write_text('[train]\nepochs = 3\naccumulate = 2\n[model]\nname = "Classifier"\n')
    config = Config.load(file)
    config["train"]["epochs"] = 5
    assert (config["train"]["epochs"], config["train"]["accumulate"]) == (5, 2)
    assert config["train"]["best_mode"] == defaults()["train"]["best_mode"]


def test_setting_does_not_change_the_defaults() -> None:
    """A second configuration begins with the packaged values."""
    config = Config()
    config["data_set"]["RandomDataset"]["shape"].append(7)
    config["train"]["epochs"] = 99
    assert Config()["train"]["epochs"] == 10
    assert Config()["data_set"]["RandomDataset"]["shape"] == [1, 32, 32]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("trian.epochs", "Did you mean 'train'?"),
        ("train.epoch", "train has no key 'epoch'. Did you mean 'epochs'?"),
        ("data_set.RandomDatset.size", "Did you mean 'RandomDataset'?"),
        ("data_set.RandomDataset.shap", "Did you mean 'shape'?"),
        ("data_set.ParquetDataset.anything", "has no key 'anything'"),
        ("model.Autoencodr.latent_dim", "Did you mean 'Autoencoder'?"),
        ("train.epochs.more", "'epochs' is a value, not a table"),
    ],
)
def test_unknown_key_names_the_nearest_one(key: str, hint: str) -> None:
    """Whatever level the mistake is on."""
    with pytest.raises(ConfigError) as caught:
        Config().set(key, 1)
    assert hint in str(caught.value)


def test_unknown_key_in_a_file_names_the_file_as_well(tmp_path: Path) -> None:
    """A mistake in a file is found when the file is read."""
    file = tmp_path / "my.toml"
    file.write_text("[train]\nepoch = 3\n")
    with pytest.raises(ConfigError, match=r"my.toml: train has no key 'epoch'. Did you mean 'epochs'"):
        Config.load(file)


@pytest.mark.parametrize(
    "way",
    [
        lambda config: config.set("train.epoch", 1),
        lambda config: config["train"].update(epoch=1),
        lambda config: config.update(train={"epoch": 1}),
        lambda config: config.merge({"train": {"epoch": 1}}),
    ],
)
def test_every_way_to_set_is_checked(way: Callable[[Config], None]) -> None:
    """There is no way round."""
    with pytest.raises(ConfigError, match="epochs"):
        way(Config())


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("train.epochs", "3", "a whole number"),
        ("train.epochs", 2.5, "a whole number"),
        ("train.epochs", True, "a whole number"),
        ("data_loader.shuffle", 1, "true or false"),
        ("model.name", 3, "a string"),
        ("onnx.tolerance", "small", "a number"),
        ("data_set.RandomDataset.shape", 32, "a list"),
        ("data_set.RandomDataset.shape", [1, "x"], "a whole number"),
        ("train", 3, "Give a dict"),
        ("train.resume", None, "TOML"),
        ("model.name", object(), "TOML"),
    ],
)
def test_value_of_another_type_is_refused(key: str, value: Any, wanted: str) -> None:
    """The default says what a value looks like."""
    with pytest.raises(ConfigError) as caught:
        Config().set(key, value)
    assert wanted in str(caught.value)
    assert key.rpartition(".")[2] in str(caught.value)


def test_numbers_of_numpy_paths_and_tuples_are_taken(tmp_path: Path) -> None:
    """What a program has at hand becomes what TOML can say."""
    config = Config()
    config["train"]["epochs"] = np.int64(3)
    config["onnx"]["tolerance"] = 1
    config["general"]["results_dir"] = tmp_path
    config["data_set"]["RandomDataset"]["shape"] = (1, 8, 8)
    assert type(config["train"]["epochs"]) is int
    assert type(config["onnx"]["tolerance"]) is float
    assert config["general"]["results_dir"] == str(tmp_path)
    assert config["data_set"]["RandomDataset"]["shape"] == [1, 8, 8]


def test_tables_of_classes_by_import_path_take_any_key() -> None:
    """The class knows its keys; a path needs quotes where it stands in a dotted key."""
    config = Config()
    config["torch.optim.Adam"]["lr"] = 0.1
    config.set('"torch.optim.AdamW".weight_decay', 0.2)
    config.set("torch.optim.SGD.lr", 0.3)
    config["data_set"]["my.module.Stars"]["size"] = 3
    config["model"]["my.module:Net"] = {"width": 7}
    assert config["torch.optim.Adam"] == {"lr": 0.1}
    assert config["torch.optim.AdamW"] == {"weight_decay": 0.2}
    assert config["torch.optim.SGD"] == {"lr": 0.3, "momentum": 0.9}
    assert config["data_set"]["my.module.Stars"]["size"] == 3
    assert config["model"]["my.module:Net"]["width"] == 7


def test_table_that_is_set_whole_has_its_defaults_again() -> None:
    """Setting a table forgets what was set in it before."""
    config = Config()
    config["train"]["accumulate"] = 4
    config["train"] = {"epochs": 2}
    assert (config["train"]["epochs"], config["train"]["accumulate"]) == (2, 1)


def test_copy_is_independent() -> None:
    """A verb may change its copy."""
    config = Config({"data_request": REQUEST})
    mine = config.copy()
    mine["train"]["epochs"] = 1
    mine["data_request"]["train"]["data"]["fields"] = ["image"]
    assert config["train"]["epochs"] == 10
    assert config["data_request"] == REQUEST
    assert type(mine) is Config


def test_get_and_in_make_no_table_and_raise_nothing() -> None:
    """Only `[...]` complains."""
    config = Config()
    before = config.as_dict()
    assert config.get("torch.optim.Adam") is None
    assert config["train"].get("epoch", 7) == 7
    assert "epoch" not in config["train"]
    assert config.as_dict() == before


def test_missing_group_names_those_that_are_there() -> None:
    """Reading has a hint too."""
    with pytest.raises(ConfigError, match=r"data_request has no key 'trian'. Did you mean 'train'"):
        Config({"data_request": REQUEST})["data_request"]["trian"]


def test_deleting_gives_the_default_back() -> None:
    """A key cannot go."""
    config = Config()
    config["train"]["epochs"] = 3
    del config["train"]["epochs"]
    assert config["train"]["epochs"] == 10


def test_effective_configuration_is_saved_and_loads_as_the_same(tmp_path: Path) -> None:
    """The file of a run is enough to run it again."""
    config = Config({"data_request": REQUEST, "train": {"epochs": 4}})
    config["data"]["nan_fields"]["data.image"] = "zero"
    config["torch.optim.Adam"]["lr"] = 0.1
    config.save(tmp_path / "config.toml")
    assert Config.load(tmp_path / "config.toml") == config
    assert tomllib.loads((tmp_path / "config.toml").read_text())["train"]["epochs"] == 4


def test_it_can_be_pickled() -> None:
    """Workers that are spawned get it."""
    config = Config({"train": {"epochs": 4}})
    again = pickle.loads(pickle.dumps(config))
    assert again == config
    with pytest.raises(ConfigError):
        again["train"]["epoch"] = 1


@pytest.mark.parametrize("text", ["[train", "\x00", "train = 3", "[data_request.train]\n"])
def test_bad_file_is_one_clear_error(tmp_path: Path, text: str) -> None:
    """Broken TOML, a value in the place of a table, a request without data."""
    file = tmp_path / "my.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"my.toml"):
        Config.load(file)


def test_missing_file_is_told(tmp_path: Path) -> None:
    """With its name."""
    with pytest.raises(ConfigError, match=r"none.toml: Cannot read the file"):
        Config.load(tmp_path / "none.toml")


def test_nan_mode_may_be_written_as_false() -> None:
    """As in TOML: nan_mode = false."""
    config = Config()
    config["data"]["nan_mode"] = False
    assert config["data"]["nan_mode"] == "false"


_leaves = st.one_of(st.text(max_size=5), st.integers(-(2**60), 2**60), st.booleans(), st.floats(allow_nan=False))
_values = st.recursive(_leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1), inner))


@settings(max_examples=25, deadline=None)
@given(value=st.dictionaries(st.text(min_size=1, max_size=8), _values, max_size=4))
def test_tables_of_classes_survive_a_file(tmp_path_factory: pytest.TempPathFactory, value: dict[str, Any]) -> None:
    """Whatever TOML can say comes back as it was."""
    config = Config()
    config["data_set"]["my.module.Stars"] = value
    file = tmp_path_factory.mktemp("config") / "config.toml"
    config.save(file)
    assert Config.load(file)["data_set"]["my.module.Stars"].as_dict() == value


def test_page_is_up_to_date() -> None:
    """docs/reference/pipeline/config.md is what defaults.toml says; this file, run as a program, writes it."""
    assert PAGE.read_text() == config_page()


def test_each_key_has_a_comment() -> None:
    """The comment is the documentation."""
    rows = [line for line in config_page().splitlines() if line.startswith("| `")]
    assert len(rows) > 40
    assert not [row for row in rows if row.endswith("|  |")]


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_HEAD = """# Configuration of the pipeline

Made from `src/sonde/pipeline/defaults.toml` by `make docs`; do not edit. A value comes from the first of these sources:
`p.config[...]` or `p.set_config(...)`, the file given with `sonde.Pipeline("my.toml")` or `sonde pipeline ... -c my.toml`,
the default. An unknown key is an error that names the nearest one; so is a value of another type. Every run saves its
configuration as `config.toml`.

The tables of classes accept other keys too, if the class knows them: `data_set.<class>` and `model.<class>` for your own
class, registered or by import path (`[data_set."my.module.MyDataset"]`). The same holds for the arguments of an optimizer,
criterion or scheduler (`["torch.optim.Adam"]`). [dataset.md](dataset.md) explains `data_request`.
"""


def config_page() -> str:
    """docs/reference/pipeline/config.md."""
    document = tomlkit.parse(DEFAULTS.read_text("utf-8"))
    return "\n".join([_HEAD, *_sections((), document)])


def _sections(place: tuple[str, ...], table: Any) -> Iterator[str]:
    rows = [f"| `{key}` | `{_value(item)}` | {_comment(item)} |" for key, item in _items(table) if not _is_table(item)]
    if rows:
        yield "\n".join([f"## [{_dotted(place)}]\n", "| key | default | what it is |", "|---|---|---|", *rows, ""])
    elif place and _comment(table):
        yield f"## [{_dotted(place)}]\n\n{_comment(table)}\n"
    for key, item in _items(table):
        if _is_table(item):
            yield from _sections((*place, key), item)


def _items(table: Any) -> list[tuple[str, Any]]:
    return [(key, table.item(key) if hasattr(table, "item") else table[key]) for key in table]


def _is_table(item: Any) -> bool:
    return isinstance(item, Mapping)


def _value(item: Any) -> str:
    return str(item.as_string()).replace("|", "\\|")


def _comment(item: Any) -> str:
    trivia = getattr(item, "trivia", None)
    return "" if trivia is None else str(trivia.comment).lstrip("# ").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(config_page())
