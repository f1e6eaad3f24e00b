"""No test reaches the network, nor does a program that a test starts.

Only this machine is reached: its loopback addresses, and sockets that are files. What asks for
more fails with :class:`NetworkRefusedError`, which is no ``OSError``: code that expects connections
to fail now and then does not expect this.

Three walls, for no one of them is both sure and everywhere:

- a hook in each Python process, which comes to those that it starts by way of ``PYTHONPATH`` (see
  ``sitecustomize.py`` beside this file);
- proxies that do not answer, for programs and compiled libraries that ask the environment for one;
- where the process may (root, on Linux), a network of its own with nothing in it but loopback, for
  it and for whatever it starts: Java, a browser, compiled code.
"""

import os
import sys
from pathlib import Path

NOBODY = "http://127.0.0.1:9"  # the port of a service that throws away what it gets
_WITH_ADDRESS = {"socket.bind", "socket.connect", "socket.sendmsg", "socket.sendto"}
_WITH_NAME = {"socket.getaddrinfo", "socket.gethostbyaddr", "socket.gethostbyname"}


class NetworkRefusedError(RuntimeError):
    """A test, or what it called, asked for the network."""


def block() -> None:
    """Keep this process and all that it starts from the network."""
    if sys.platform == "linux" and os.geteuid() == 0:
        _leave_the_network()
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        os.environ[name] = os.environ[name.upper()] = NOBODY
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = "localhost,127.0.0.1,::1"
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # onnxruntime: files in the home, and reports
    # The name of the machine may mean an address that is not loopback.
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
    here = str(Path(__file__).parent)
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *(p for p in others if p not in {"", here})])
    refuse()


def refuse() -> None:
    """Keep this process from the network; nothing lifts it again."""
    sys.addaudithook(_look_at)


def alone() -> bool:
    """Return whether this process sees no network but loopback."""
    import socket

    return [name for _, name in socket.if_nameindex()] == ["lo"]


def _leave_the_network() -> None:
    """Move to an empty network, and switch on its loopback; stay where that is not allowed."""
    import ctypes
    import fcntl
    import socket
    import struct

    new_network, set_flags, up = 0x40000000, 0x8914, 1  # CLONE_NEWNET, SIOCSIFFLAGS, IFF_UP
    if alone() or ctypes.CDLL(None).unshare(new_network) != 0:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sH22x", b"lo", up))


def _look_at(event: str, arguments: tuple) -> None:
    if event in _WITH_ADDRESS:
        _check_address(event, *arguments)
    elif event in _WITH_NAME and not _is_own_name(arguments[0]):
        _check_host(event, arguments[0])
    elif event == "socket.getnameinfo":
        _check_host(event, arguments[0][0])


def _is_own_name(host: object) -> bool:
    import socket

    return host is None or host == socket.gethostname()


def _check_address(event: str, used: object, address: object) -> None:
    if isinstance(address, tuple):
        _check_host(event, address[0])
    elif address is not None and used.family.name != "AF_UNIX":  # None: where it is connected to
        _say(event, address)


def _check_host(event: str, host: str | bytes | bytearray) -> None:
    import ipaddress

    name = host if isinstance(host, str) else bytes(host).decode("ascii", "replace")
    if name.lower() == "localhost":
        return
    try:
        known = ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        known = False
    if not known:
        _say(event, name)


def _say(event: str, where: object) -> None:
    raise NetworkRefusedError(
        f"a test asked for the network ({event}: {where!r}): it may reach this machine only"
    )
