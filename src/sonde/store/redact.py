"""Takes secrets out of a command line before it is written down: option names stay, their values become `***`."""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "***"
MAX_ARGUMENTS = 1000
MAX_CHARACTERS = 4096  # of one argument: `python -c` may carry a whole program

# A name is secret if one of its words is one of these ...
_WORDS = frozenset(
    (
        "auth", "authorization", "bearer", "cookie", "credential", "credentials", "creds", "dsn", "jwt", "key", "keys",
        "pass", "passcode", "passphrase", "passwd", "password", "passwords", "pat", "pw", "pwd", "secret", "secrets",
        "sig", "signature", "token", "webhook",
    )
)  # fmt: skip
# ... or ends with one of these (authtoken, clientsecret). "tokenizer" does not, and "max tokens" is a number.
_ENDINGS = (
    "token", "secret", "secrets", "password", "passwd", "passphrase", "apikey", "accesskey", "secretkey", "privatekey",
    "authkey", "credentials",
)  # fmt: skip

# The patterns are compiled at their first use (`re` keeps them): most processes never need them.
_SPLIT = r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])"
_WHOLE = r"(?s)([-+/]*)([A-Za-z0-9_.\-\[\]]+)=(.*)"
# Behind "-p" stands a password in many programs; behind these others a token, if it looks like one.
_SHORT = r"-[kstw]"
_MIXED = r"(?=.*[0-9])(?=.*[A-Za-z])[^./\s]{8,}"
_ATTACHED = r"(-p)(?=.*[^a-z_-]).+"  # "-pS3cret", not "-path"
_OPTION = r"-{1,2}[A-Za-z][A-Za-z0-9_.\-]*"
# A name and a sign, and a value behind them: in JSON, in a URL's query, in a line of Python, in a header.
_NAME = r"(?<![A-Za-z0-9_.\-])([A-Za-z0-9_.\-]++)['\"\])]{0,4}\s{0,4}([:=])\s{0,4}"
_VALUE = r"\"[^\"]*\"?|'[^']*'?|[^\s'\"&;,}]+"
_NUMBER = r"[0-9]{1,9}"
_SCHEMES = ("bearer", "basic", "digest", "token")
_BEGINNINGS = (
    r"hf_|api_org_|[sr]k_live_|sk-|gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|npm_|pypi-|dckr_pat_|nvapi-|AKIA|ASIA|AIza|"
    r"ya29\."
)
_SHAPES = (
    (r"(://[^/\s:@]{0,256}:)[^/\s]{1,1024}@", rf"\1{HIDDEN}@"),  # user and password in a URL
    (r"(://)[^/\s:@]{12,1024}@", rf"\1{HIDDEN}@"),  # a token in place of the user
    (rf"(?i)\b({'|'.join(_SCHEMES)})(\s+)[^\s'\"]{{4,}}", rf"\1\2{HIDDEN}"),
    (rf"(?<![A-Za-z0-9])({_BEGINNINGS})[A-Za-z0-9_\-.]{{12,}}", rf"\1{HIDDEN}"),
    (r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_\-]{6,}\.[A-Za-z0-9_\-]{6,}\.[A-Za-z0-9_\-]*", HIDDEN),  # a JSON web token
)


def redact(command: Sequence[str]) -> list[str]:
    """The command without its secrets, and bounded in length."""
    shown: list[str] = []
    hide_next = last_short = False
    for argument in command[:MAX_ARGUMENTS]:
        if (hide_next and not argument.startswith("--")) or (last_short and re.fullmatch(_MIXED, argument)):
            shown.append(HIDDEN)
            hide_next = last_short = False
            continue
        hide_next = argument == "-p" or (bool(re.fullmatch(_OPTION, argument)) and is_secret(argument))
        last_short = bool(re.fullmatch(_SHORT, argument))
        shown.append(redact_text(argument))
    if len(command) > MAX_ARGUMENTS:
        shown.append(f"... ({len(command) - MAX_ARGUMENTS} more)")
    return shown


def redact_text(text: str) -> str:
    """One argument without its secrets."""
    attached = re.fullmatch(_ATTACHED, text)
    if attached:
        return f"{attached[1]}{HIDDEN}"
    whole = re.fullmatch(_WHOLE, text)
    if whole and is_secret(whole[2]):
        return f"{whole[1]}{whole[2]}={HIDDEN}"
    # A longer text is cut with some room to spare, so that a secret at the edge is seen whole.
    shown = text[: 2 * MAX_CHARACTERS]
    for shape, replacement in _SHAPES:
        shown = re.sub(shape, replacement, shown)
    shown = _hide_values(shown)
    return shown if len(shown) <= MAX_CHARACTERS else shown[:MAX_CHARACTERS] + "..."


def redact_url(url: str) -> str:
    """A URL without user, password, query and fragment: they may hold credentials, and none of them says where something is."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return redact_text(url)
    plain = re.split(r"[?#]", rest, maxsplit=1)[0]
    where, slash, path = plain.partition("/")
    return f"{scheme}://{where.rpartition('@')[2]}{slash}{path}"


def is_secret(name: str) -> bool:
    """Does an option or a variable of this name hold a secret?"""
    words = [word.lower() for word in re.split(_SPLIT, name) if word]
    return any(word in _WORDS or word.endswith(_ENDINGS) for word in words) or words == ["tokens"]


def _hide_values(text: str) -> str:
    """Hide the values behind secret names, wherever in the text they stand."""
    names, values = re.compile(_NAME), re.compile(_VALUE)
    parts: list[str] = []
    done = 0
    name = names.search(text)
    while name:
        end = name.end()
        value = values.match(text, end)
        if value and is_secret(name[1]) and not _is_harmless(value[0], name[2]):
            quote = value[0][0] if value[0][0] in "'\"" else ""
            parts += [text[done:end], quote, HIDDEN, quote]
            done = end = value.end()
        name = names.search(text, end)
    return "".join([*parts, text[done:]])


def _is_harmless(value: str, sign: str) -> bool:
    if HIDDEN in value or value.lower() in _SCHEMES:
        return True
    return sign == ":" and re.fullmatch(_NUMBER, value) is not None  # "key: 3" in a line of code or JSON
