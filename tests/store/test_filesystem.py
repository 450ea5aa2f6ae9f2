"""Which file system lies under a path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sonde.store.filesystem import may_map, type_of

if TYPE_CHECKING:
    from pathlib import Path

MOUNTS = """\
1 0 8:1 / / rw,relatime - ext4 /dev/sda1 rw
2 1 0:5 / /data rw shared:1 master:2 - nfs4 server:/x rw
3 1 0:6 / /data/local rw - xfs /dev/sdb rw
4 1 0:7 / /with\\040space rw - fuse.sshfs host: rw
5 1 0:8 / /twice rw - ext4 /dev/sdc rw
6 1 0:9 / /twice rw - lustre server rw
7 1 0:9 / /mem rw - tmpfs tmpfs rw
not a line of mountinfo
8 1
"""


@pytest.fixture
def mounts(tmp_path: Path) -> str:
    file = tmp_path / "mountinfo"
    file.write_text(MOUNTS)
    return str(file)


@pytest.mark.parametrize(
    ("path", "kind", "mapped"),
    [
        ("/home/x", "ext4", True),
        ("/", "ext4", True),
        ("/data/runs", "nfs4", False),
        ("/data/local/runs", "xfs", True),
        ("/data/localhost", "nfs4", False),
        ("/with space/x", "fuse.sshfs", False),
        ("/twice", "lustre", False),
        ("/mem/x", "tmpfs", True),
    ],
)
def test_the_longest_mount_point_decides(mounts: str, path: str, kind: str, mapped: bool) -> None:
    """The type is that of the nearest mount; network and FUSE types are not mapped."""
    assert type_of(path, mounts) == kind
    assert may_map(path, mounts) is mapped


def test_without_a_table_of_mounts_nothing_is_mapped(tmp_path: Path) -> None:
    """Where the kernel tells nothing, Sonde does not trust a mapping."""
    assert type_of("/", str(tmp_path / "none")) is None
    assert not may_map("/", str(tmp_path / "none"))


def test_the_real_table_knows_the_root() -> None:
    """On Linux the kernel's own table has an answer."""
    assert type_of("/proc/self") == "proc"
