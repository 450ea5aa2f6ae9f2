"""Every exception that Sonde raises on purpose.

    SondeError                     catch this to catch them all
    ├── SettingError               a setting has a wrong name or a wrong value        (also a ValueError)
    ├── RunNotFound                there is no such run                               (also a FileNotFoundError)
    ├── RunUnreadable              a run is there, but its files cannot be understood
    ├── RunBusy                    a run is still being written, and this needs a finished one
    ├── FolderRefused              Sonde will not write there: a symbolic link, a foreign owner, something in the way
    ├── UnknownName                a table, format or command that does not exist     (also a LookupError)
    └── MissingExtra               an optional library is not installed               (also an ImportError)

A message says what happened, with which value, and what to do. While a program is being recorded none of these reaches
it, except a SettingError from `sonde.init()`: that one is a mistake in the call itself.
"""

from __future__ import annotations


class SondeError(Exception):
    """The root of all errors of Sonde."""


class SettingError(SondeError, ValueError):
    """A setting has a wrong name or a wrong value."""


class RunNotFound(SondeError, FileNotFoundError):
    """There is no such run."""


class RunUnreadable(SondeError):
    """A run is there, but its files cannot be understood."""


class RunBusy(SondeError):
    """A run is still being written, and what was asked for needs a finished one."""


class FolderRefused(SondeError):
    """Sonde will not write there: a symbolic link, a foreign owner, or something that stands in the way."""


class UnknownName(SondeError, LookupError):
    """A table, an export format or another thing that is asked for by name does not exist."""


class MissingExtra(SondeError, ImportError):
    """An optional library is not installed."""

    @classmethod
    def of(cls, library: str, extra: str, purpose: str) -> MissingExtra:
        """The error for `library`, which `purpose` needs and the extra `extra` installs."""
        return cls(f"{purpose} needs {library}, which is not installed: pip install 'sonde[{extra}]'")


def nearest(word: str, valid: list[str]) -> str:
    """The end of a message about a name that is not valid: the one that was probably meant, and all valid ones."""
    import difflib  # only needed when something is wrong, and not cheap to import

    close = difflib.get_close_matches(word, valid, n=1)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    return f"{hint}Valid: {', '.join(valid)}."
