"""The file system under a path, and whether shared memory mappings are reliable there."""

from __future__ import annotations

import os

MOUNTS = "/proc/self/mountinfo"

# Types whose pages live somewhere else than in this kernel: what is written into a mapping may reach the file late, or
# not at all after a kill. Every type that begins with "fuse" counts as well.
REMOTE = frozenset(
    {
        "9p",
        "acfs",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "drvfs",
        "glusterfs",
        "gpfs",
        "kafs",
        "lustre",
        "mmfs",
        "ncpfs",
        "nfs",
        "nfs4",
        "orangefs",
        "panfs",
        "prl_fs",
        "pvfs2",
        "smb2",
        "smb3",
        "smbfs",
        "sshfs",
        "vboxsf",
        "virtiofs",
        "vmhgfs",
        "wekafs",
    }
)


def type_of(path: str | os.PathLike[str], mounts: str = MOUNTS) -> str | None:
    """The type of the file system under a path, such as "ext4"; None where that cannot be determined (not on Linux)."""
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.readlines()
    except OSError:
        return None
    real = os.path.realpath(path)
    best, found = -1, None
    for line in lines:
        point, kind = _parse(line)
        # >=: of two mounts on the same point the later one is seen.
        if kind and _below(real, point) and len(point) >= best:
            best, found = len(point), kind
    return found


def may_map(path: str | os.PathLike[str], mounts: str = MOUNTS) -> bool:
    """May rings be memory-mapped there? No on network and FUSE file systems, and where the type is not known."""
    kind = type_of(path, mounts)
    return kind is not None and kind not in REMOTE and not kind.startswith("fuse")


def _parse(line: str) -> tuple[str, str]:
    """Mount point and type of one line of mountinfo; empty texts for a line that is none."""
    before, separator, after = line.partition(" - ")
    fields = before.split(" ")
    if not separator or len(fields) < 5 or not after.strip():
        return "", ""
    return _unescape(fields[4]), after.split()[0].lower()


def _unescape(text: str) -> str:
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escape, character)
    return text


def _below(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def has_working_folder() -> bool:
    """Whether the working folder of this process is still there; another program may have removed it."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True
