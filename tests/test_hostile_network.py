"""Nothing is sent or asked over a network: the suite runs with sockets blocked (conftest), and this is the block."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ADDRESS = ("127.0.0.1", 9)


@pytest.mark.parametrize(
    "use",
    [
        lambda: socket.create_connection(ADDRESS, timeout=1),
        lambda: socket.socket(socket.AF_INET).connect(ADDRESS),
        lambda: socket.socket(socket.AF_INET6).connect_ex(("::1", 9)),
        lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ADDRESS),
        lambda: socket.socket().bind(("", 0)),
        lambda: socket.getaddrinfo("localhost", 80),
        lambda: socket.gethostbyname("localhost"),
    ],
    ids=["create", "connect", "connect_ex", "sendto", "bind", "getaddrinfo", "gethostbyname"],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_block_bites(use):
    with pytest.raises(RuntimeError, match="tests use no network"):
        use()


def test_sockets_between_processes_of_this_machine_are_no_network(tmp_path):
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(tmp_path / "socket"))
        server.listen()
        client.connect(str(tmp_path / "socket"))
    for end in socket.socketpair():
        end.close()


@pytest.mark.network
def test_a_test_that_is_marked_may_connect_to_this_machine():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert client.getpeername() == server.getsockname()


def started(program, **environment):
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=os.environ | environment
    )


def test_the_block_bites_in_processes_that_tests_start():
    done = started("import socket; socket.create_connection(('127.0.0.1', 9))")
    assert done.returncode == 1
    assert "NetworkUsedError: socket.getaddrinfo" in done.stderr or "NetworkUsed: socket.connect" in done.stderr


# What the kernel is told to refuse, so that libraries in C cannot connect either: a filter of system calls that lets
# socket(family, ...) fail for families 2 (IPv4) and 10 (IPv6). Offsets are those of struct seccomp_data on x86-64.
FILTERED = """
import ctypes, struct, sys
LOAD, EQUAL, RETURN, ALLOW, REFUSE, SOCKET = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050000 | 13, 41
program = [
    (LOAD, 0, 0, 0), (EQUAL, 0, 4, SOCKET), (LOAD, 0, 0, 16), (EQUAL, 1, 0, 2), (EQUAL, 0, 1, 10),
    (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW),
]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
held = Program(len(program), ctypes.addressof(code))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(held), 0, 0):
    sys.exit(77)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux") or os.uname().machine != "x86_64", reason="a filter of Linux")
def test_a_fit_needs_no_socket_at_all(tmp_path):
    probe = started(FILTERED + "import socket\nsocket.socket(socket.AF_UNIX)\nsocket.socket(socket.AF_INET)")
    if probe.returncode == 77:
        pytest.skip("this kernel takes no filter of system calls")
    assert "PermissionError" in probe.stderr
    (tmp_path / "t.csv").write_text("a,b,c\n" + "1.5,2,3\n2,0.5,4\n3,2,2\n4,1,9\n5,1.5,3\n6,0.7,8\n")
    words = ["fit", str(tmp_path / "t.csv"), "-o", str(tmp_path / "run"), "--model", "linear", "--quiet"]
    done = started(f"{FILTERED}\nfrom vcuda.cli import main\nmain({words!r})")
    assert done.returncode == 0, done.stderr
    assert {"config.json", "posterior.npz", "edges.csv"} <= {path.name for path in (tmp_path / "run").iterdir()}


def test_no_part_of_the_package_imports_what_talks_to_networks():
    source = Path(__file__).parents[1] / "src" / "vcuda"
    talking = ("import socket", "import urllib", "from urllib", "import http", "import requests", "import ssl")
    # The app is a server on this machine; tests/test_app.py holds it to that.
    files = [path for path in source.rglob("*.py") if path.parent.name != "app"]
    found = [path.name for path in files for word in talking if word in path.read_text(encoding="utf-8")]
    assert found == []
