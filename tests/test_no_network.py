"""No test reaches the network: not in this process, not in one that it starts."""

import socket
import subprocess
import sys

import no_network
import pytest
from no_network import NetworkRefusedError

ELSEWHERE = "192.0.2.1"  # kept for documentation: nobody has it


UDP = socket.SOCK_DGRAM
WAYS = {
    "connect": lambda s: s.connect((ELSEWHERE, 80)),
    "send": lambda s: s.sendto(b"x", (ELSEWHERE, 9)),
    "listen to all": lambda s: s.bind(("0.0.0.0", 0)),  # noqa: S104 (it is refused)
    "the usual way": lambda _: socket.create_connection((ELSEWHERE, 80), timeout=1),
    "look up": lambda _: socket.getaddrinfo("example.org", 80),
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_but_this_machine(way):
    kind = UDP if "send" in way else socket.SOCK_STREAM
    refused = pytest.raises(NetworkRefusedError, match="it may reach this machine only")
    with socket.socket(type=kind) as used, refused:
        WAYS[way](used)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.8.8.8"])
def test_this_machine(host):
    with socket.create_server((host, 0)) as server, socket.create_connection(server.getsockname()):
        server.accept()[0].close()


REACH = f"import socket; socket.create_connection(({ELSEWHERE!r}, 80), timeout=1)"
CHILD = f"import subprocess as s, sys; s.run([sys.executable, '-c', {REACH!r}], check=True)"


@pytest.mark.parametrize("code", [REACH, CHILD], ids=["child", "grandchild"])
def test_processes_that_are_started(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "NetworkRefusedError: a test asked for the network" in done.stderr


@pytest.mark.skipif(not no_network.alone(), reason="only root on Linux may leave the network")
def test_programs_that_are_not_python():
    seen = subprocess.run(["/bin/cat", "/proc/net/dev"], capture_output=True, text=True, check=True)
    assert [line.split(":")[0].strip() for line in seen.stdout.splitlines()[2:]] == ["lo"]
