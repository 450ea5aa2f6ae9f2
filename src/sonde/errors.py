"""Every exception that Sonde raises on purpose.

    SondeError                     catch this to catch them all
    ├── SettingError               a setting has a wrong name or a wrong value        (also a ValueError)
    ├── RunNotFound                there is no such run                               (also a FileNotFoundError)
    ├── RunUnreadable              a run is there, but its files cannot be understood
    ├── RunBusy                    a run is still being written, and this needs a finished one
    ├── FolderRefused              Sonde will not write there: a symbolic link, a foreign owner, something in the way
    ├── QueryRefused               SQL that is not a SELECT, or that reads files outside of the run
    ├── RemoteError                a bucket or another place at a URL denies, does not answer, or holds something else
    ├── ClusterError               a Dask scheduler or its workers cannot be reached, were killed, or do not see the run
    ├── UnknownName                a table, format or command that does not exist     (also a LookupError)
    ├── ResultsError               results cannot be written, or cannot be read
    ├── ExportError                a model cannot be exported, or the exported one cannot be run
    ├── PolicyError                the file with thresholds of the diagnosis has a wrong name or value     (also a ValueError)
    ├── RuleError                  a rule of one's own, or its file, is wrong         (also a ValueError)
    ├── ConfigError                the configuration of a pipeline has a wrong key or a wrong value   (also a ValueError)
    ├── DataError                  a dataset of a pipeline gave something that cannot be used: which one, field, item
    ├── ModelError                 a model of a pipeline lacks a method, or gives something that cannot be used
    ├── CheckpointError            a checkpoint or a file with weights is missing, corrupt or of another model
    ├── CommandRefused             `sonde run` cannot start a program: it is not there, or not executable
    ├── ReplayError                a batch cannot be rebuilt: no ledger, another dataset, an item that fails
    ├── WrapRefused                a `wrap_...` function was given something that it cannot wrap      (also a TypeError)
    ├── NonFinite                  the watch for NaN and infinity found one, and was told to stop there    (also an ArithmeticError)
    └── MissingExtra               an optional library is not installed               (also an ImportError)

    IncompleteRun                  a warning: parts of a sealed run are missing or damaged, and so from every answer

A message says what happened, with which value, and what to do. While a program is being recorded none of these reaches
it, except a SettingError from `sonde.init()` and a WrapRefused, which are mistakes in the call itself, and a NonFinite, which
was asked for (`action="stop"`).
"""

from __future__ import annotations


class SondeError(Exception):
    """Base class of all errors raised by Sonde."""


class SettingError(SondeError, ValueError):
    """A setting has a wrong name or a wrong value."""


class RunNotFound(SondeError, FileNotFoundError):
    """There is no such run."""


class RunUnreadable(SondeError):
    """A run is there, but its files cannot be understood."""


class RunBusy(SondeError):
    """A run is still being written, and what was asked for needs a finished one."""


class IncompleteRun(UserWarning):
    """Parts of a sealed run are missing or damaged; answers lack what they hold."""


class FolderRefused(SondeError):
    """Sonde will not write there: a symbolic link, a foreign owner, something that stands in the way, or no room."""


class QueryRefused(SondeError):
    """SQL over a run is not a SELECT, or reads files outside of the run."""


class RemoteError(SondeError):
    """A place at a URL cannot be reached, denies, or holds something else than a run of Sonde."""


class ClusterError(SondeError):
    """A Dask scheduler or its workers cannot be reached, were killed, or do not see the run."""


class UnknownName(SondeError, LookupError):
    """A table, an export format or another thing that is asked for by name does not exist."""


class ResultsError(SondeError):
    """The results of a pipeline cannot be written, or cannot be read."""


class ExportError(SondeError):
    """A model cannot be exported, the exported one computes something else, or it cannot be run."""


class PolicyError(SondeError, ValueError):
    """The file with thresholds of the diagnosis has a wrong name or a wrong value."""


class RuleError(SondeError, ValueError):
    """A rule of one's own, or its file, is wrong."""


class ConfigError(SondeError, ValueError):
    """The configuration of a pipeline has a wrong key or a wrong value."""


class DataError(SondeError):
    """A dataset of a pipeline gave something that cannot be used."""


class ModelError(SondeError):
    """A model of a pipeline lacks a method, or gives something that cannot be used."""


class CheckpointError(SondeError):
    """A checkpoint or a file with weights is missing, corrupt, or of another model."""


class CommandRefused(SondeError):
    """A program cannot be started; `exit_code` is what a shell, or Python, would have answered."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class ReplayError(SondeError):
    """A batch of a run cannot be rebuilt: nothing is known of it, or the dataset is not the one that it came from."""


class WrapRefused(SondeError, TypeError):
    """A function of the kind `wrap_...` was given something that it cannot wrap."""


class NonFinite(SondeError, ArithmeticError):
    """A value is NaN or infinite, and the watch was told to stop there; `certificate` says where it was born."""

    def __init__(self, message: str, certificate: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.certificate = certificate or {}


class MissingExtra(SondeError, ImportError):
    """An optional library is not installed."""

    @classmethod
    def of(cls, library: str, extra: str, purpose: str) -> MissingExtra:
        """The error for `library`, which `purpose` needs and the extra `extra` installs."""
        return cls(f"{purpose} needs {library}, which is not installed: pip install 'sonde-ml[{extra}]'")


def nearest(word: str, valid: list[str]) -> str:
    """The end of a message about a name that is not valid: the one that was probably meant, and all valid ones."""
    import difflib  # only needed when something is wrong, and not cheap to import

    close = difflib.get_close_matches(word, valid, n=1)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    return f"{hint}Valid: {', '.join(valid)}."
