"""Every spelling of an address, bound and dialled; and addresses that cannot be."""

from __future__ import annotations

import os
import socket
import stat
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support import FunctionEnv, python_child, serving, within

from rlmesh import EnvServer
from rlmesh.numpy import RemoteEnv
from rlmesh.transport.address import (
    Address,
    TcpAddress,
    UnixAddress,
    connect,
    make_address,
    parse_address,
)


def free_port(host: str = "127.0.0.1") -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as sock:
        sock.bind((host, 0))
        return sock.getsockname()[1]


# Spelling


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tcp://127.0.0.1:5555", TcpAddress("127.0.0.1", 5555)),
        ("127.0.0.1:5555", TcpAddress("127.0.0.1", 5555)),
        ("http://robot.example:80", TcpAddress("robot.example", 80)),
        ("http://robot.example:80/", TcpAddress("robot.example", 80)),
        ("  localhost:1 ", TcpAddress("localhost", 1)),
        ("[::1]:5555", TcpAddress("::1", 5555)),
        ("tcp://[fe80::1]:5555", TcpAddress("fe80::1", 5555)),
        ("http://[::1]:65535", TcpAddress("::1", 65535)),
        ("unix:///run/env.sock", UnixAddress("/run/env.sock")),
        ("unix:/run/env.sock", UnixAddress("/run/env.sock")),
    ],
)
@pytest.mark.parametrize("bind", [True, False])
def test_an_address_is_spelt_in_many_ways(text: str, expected: Address, bind: bool) -> None:
    assert parse_address(text, bind=bind) == expected
    assert parse_address(str(expected), bind=bind) == expected


def test_a_bare_port_and_port_zero_can_be_bound_and_not_dialled() -> None:
    assert parse_address("5555", bind=True) == TcpAddress("127.0.0.1", 5555)
    assert parse_address("127.0.0.1:0", bind=True) == TcpAddress("127.0.0.1", 0)
    with pytest.raises(ValueError, match="invalid address: '5555': a port is missing"):
        parse_address("5555")
    with pytest.raises(ValueError, match="port 0 can be bound but not dialled"):
        parse_address("127.0.0.1:0")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "address cannot be empty"),
        ("   ", "address cannot be empty"),
        ("https://robot:5555", "https:// is reserved"),
        ("ftp://robot:5555", "unknown scheme 'ftp'"),
        ("robot", "is not a port|a port is missing"),
        ("robot:", "is not a port"),
        ("robot:65536", "is not a port"),
        ("robot:-1", "is not a port"),
        ("robot:" + "9" * 5000, "is not a port"),
        ("robot:\uff15\uff15", "is not a port"),
        ("robot:12/path", "is not a port"),
        (":5555", "a host is missing"),
        ("::1:5555", r"an IPv6 address is written \[host\]:port"),
        ("[::1]", r"an IPv6 address is written \[host\]:port"),
        ("[::1:5555", r"an IPv6 address is written \[host\]:port"),
        ("unix://", "unix:///absolute/path"),
        ("unix://relative.sock", "unix:///absolute/path"),
        ("unix:///a\0b", "unix:///absolute/path"),
        ("unix:///" + "a" * 107, r"108 bytes and a unix socket allows 107; shorten it"),
    ],
)
@pytest.mark.parametrize("bind", [True, False])
def test_what_is_no_address_is_refused_with_the_forms_that_are(
    text: str, complaint: str, bind: bool
) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        parse_address(text, bind=bind)
    assert "host:port" in str(caught.value)
    with pytest.raises(ValueError, match=complaint):
        EnvServer(FunctionEnv(), text)
    with pytest.raises(ValueError, match=complaint):
        RemoteEnv(text)


@given(
    st.text(max_size=40) | st.text(string.ascii_letters + string.digits + ":/[].@%-", max_size=40)
)
@example("tcp://[::]:1:2")
@example("unix:unix:///x")
@example("http:///")
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    for bind in (True, False):
        try:
            address = parse_address(text, bind=bind)
        except ValueError:
            continue
        assert parse_address(str(address), bind=bind) == address


def test_an_address_is_text() -> None:
    with pytest.raises(TypeError, match="expected an address string, got int"):
        EnvServer(FunctionEnv(), 5555)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, TcpAddress("127.0.0.1", 0)),
        ({"host": "0.0.0.0"}, TcpAddress("0.0.0.0", 0)),
        ({"port": 5555}, TcpAddress("127.0.0.1", 5555)),
        ({"host": "::1", "port": 5555}, TcpAddress("::1", 5555)),
        ({"host": "h", "port": 1, "transport": "tcp"}, TcpAddress("h", 1)),
        ({"path": "/run/x.sock"}, UnixAddress("/run/x.sock")),
        ({"path": Path("/run/x.sock"), "transport": "unix"}, UnixAddress("/run/x.sock")),
    ],
)
def test_an_address_comes_in_parts(parts: dict[str, Any], expected: Address) -> None:
    assert make_address(None, bind=True, **parts) == expected


@pytest.mark.parametrize(
    ("parts", "kind", "complaint"),
    [
        ({"address": "h:1", "host": "h"}, ValueError, "address cannot be combined with host"),
        ({"address": "h:1", "port": 1}, ValueError, "address cannot be combined with port"),
        ({"address": "h:1", "path": "/x"}, ValueError, "address cannot be combined with path"),
        ({"address": "h:1", "transport": "tcp"}, ValueError, "combined with transport"),
        ({"path": "/x", "host": "h"}, ValueError, "path cannot be combined with host or port"),
        ({"path": "/x", "port": 1}, ValueError, "path cannot be combined with host or port"),
        ({"path": "/x", "transport": "tcp"}, ValueError, "cannot be combined with path"),
        ({"transport": "unix"}, ValueError, "transport='unix' needs path="),
        ({"transport": "udp"}, ValueError, "transport must be 'tcp', 'unix' or None, got 'udp'"),
        ({"port": "5555"}, TypeError, "port must be an int, got str"),
        ({"port": True}, TypeError, "port must be an int, got bool"),
        ({"port": 5555.0}, TypeError, "port must be an int, got float"),
        ({"port": 65536}, ValueError, r"port must be in 0\.\.65535, got 65536"),
        ({"port": -1}, ValueError, r"port must be in 0\.\.65535, got -1"),
    ],
)
def test_parts_that_contradict_each_other_are_refused_at_both_ends(
    parts: dict[str, Any], kind: type[Exception], complaint: str
) -> None:
    with pytest.raises(kind, match=complaint):
        EnvServer(FunctionEnv(), **parts)
    with pytest.raises(kind, match=complaint):
        RemoteEnv(**parts)


@pytest.mark.parametrize("parts", [{}, {"host": "h"}])
def test_a_client_without_an_endpoint_is_told_to_name_one(parts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no endpoint given: pass an address"):
        RemoteEnv(**parts)


# Serving there


@pytest.mark.parametrize(
    ("form", "host"),
    [
        ("tcp://127.0.0.1:{port}", "127.0.0.1"),
        ("127.0.0.1:{port}", "127.0.0.1"),
        ("{port}", "127.0.0.1"),
        ("http://127.0.0.1:{port}", "127.0.0.1"),
        ("localhost:{port}", "127.0.0.1"),
        ("0.0.0.0:{port}", "0.0.0.0"),
        ("[::1]:{port}", "::1"),
        ("tcp://[::1]:{port}", "::1"),
    ],
)
def test_an_env_is_served_and_driven_at_every_form(form: str, host: str) -> None:
    port = free_port("::1" if ":" in host else "127.0.0.1")
    with serving(FunctionEnv(), form.format(port=port)) as server:
        assert server.address.startswith("tcp://")
        assert server.address.endswith(f":{port}")
        dialled = f"127.0.0.1:{port}" if form == "{port}" else form.format(port=port)
        for address in (dialled, server.address):
            with RemoteEnv(address) as env:
                assert env.transport == "native"
                observation, _ = env.reset()
                assert observation.tolist() == [0, 0, 0, 0]


def test_an_env_is_served_at_a_unix_socket_whose_file_goes_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "env.sock"
    for arguments in ({"address": f"unix://{path}"}, {"path": path}, {"path": str(path)}):
        with EnvServer(FunctionEnv(), **arguments) as server:
            server.start()
            assert server.address == f"unix://{path}"
            assert stat.S_ISSOCK(path.stat().st_mode)
            for dialled in ({"address": server.address}, arguments):
                with RemoteEnv(**dialled) as env:
                    env.reset()
                    assert env.step(np_action())[0].tolist() == [1, 0, 0, 0]
        assert not path.exists()


def np_action() -> Any:
    return [0.0, 0.0]


def test_by_default_a_free_port_of_this_host_is_taken() -> None:
    with EnvServer(FunctionEnv()) as one, EnvServer(FunctionEnv()) as other:
        assert one.address.startswith("tcp://127.0.0.1:")
        assert one.address != other.address
        assert repr(one) == f"EnvServer(address={one.address!r})"


# Addresses that cannot be bound


def test_a_port_in_use_is_named_with_a_way_out() -> None:
    with EnvServer(FunctionEnv()) as server:
        with pytest.raises(ConnectionError) as caught:
            EnvServer(FunctionEnv(), server.address)
        assert str(caught.value).startswith(f"failed to bind tcp listener: {server.address}: ")
        assert "in use" in str(caught.value)
        assert "port 0 takes a free port" in str(caught.value)
    with EnvServer(FunctionEnv(), server.address) as again:
        assert again.address == server.address


def test_a_socket_file_in_use_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "env.sock"
    with serving(FunctionEnv(), f"unix://{path}") as server:
        with pytest.raises(ConnectionError, match=f"failed to bind unix listener: unix://{path}: "):
            EnvServer(FunctionEnv(), server.address)
        with RemoteEnv(server.address) as env:
            env.reset()


def test_the_socket_file_of_a_dead_server_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "env.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.exists()
    with serving(FunctionEnv(), f"unix://{path}") as server, RemoteEnv(server.address) as env:
        env.reset()


def test_a_file_that_is_no_socket_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(ConnectionError, match="failed to bind unix listener"):
        EnvServer(FunctionEnv(), f"unix://{path}")
    assert path.read_text() == "data"


def test_the_socket_file_of_a_later_server_survives_the_earlier_ones_end(tmp_path: Path) -> None:
    path = tmp_path / "env.sock"
    earlier = EnvServer(FunctionEnv(), f"unix://{path}")
    path.unlink()  # somebody tidied up
    with serving(FunctionEnv(), f"unix://{path}") as later:
        earlier.shutdown()
        with RemoteEnv(later.address) as env:
            env.reset()


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("nowhere.invalid:5555", r"tcp://nowhere\.invalid:5555: .*give a local host name"),
        ("a" * 300 + ":5555", r"failed to bind tcp listener: .*give a local host name"),
        ("203.0.113.7:5555", r"tcp://203\.0\.113\.7:5555: .*assign requested address"),
        (
            "unix:///nonexistent/folder/env.sock",
            "unix:///nonexistent/folder/env.sock: No such file",
        ),
    ],
)
def test_what_is_not_of_this_host_cannot_be_bound(address: str, complaint: str) -> None:
    with pytest.raises(ConnectionError, match=complaint):
        EnvServer(FunctionEnv(), address)


def test_a_privileged_port_is_refused_by_name() -> None:
    code = """
import os
from support import FunctionEnv
from rlmesh import EnvServer
EnvServer(FunctionEnv()).shutdown()  # everything is imported now
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    with EnvServer(FunctionEnv(), "127.0.0.1:1"):
        print("bound")
except ConnectionError as exc:
    print(exc)
"""
    setting = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    privileged = not setting.exists() or int(setting.read_text()) > 1
    with python_child(code) as child:
        said = child.line()
    if privileged:
        assert said.startswith("failed to bind tcp listener: tcp://127.0.0.1:1: Permission denied")
    else:
        assert said == "bound"


# Addresses that cannot be dialled


def test_a_port_where_nobody_listens_is_named_at_once() -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    with within(12.0), pytest.raises(ConnectionError) as caught:
        RemoteEnv(address)
    assert f"could not connect to an env at '{address}'" in str(caught.value)
    assert "is the EnvServer running?" in str(caught.value)


@pytest.mark.parametrize("leave_file", [True, False])
def test_a_socket_file_without_a_server_is_named_at_once(tmp_path: Path, leave_file: bool) -> None:
    path = tmp_path / "env.sock"
    if leave_file:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
    with within(12.0), pytest.raises(ConnectionError, match=f"an env at 'unix://{path}'; is the"):
        RemoteEnv(f"unix://{path}")


@pytest.mark.parametrize("host", ["nowhere.invalid", "a" * 300, "two words"])
def test_a_host_without_an_address_is_named(host: str) -> None:
    with within(30.0), pytest.raises((ConnectionError, TimeoutError)) as caught:
        RemoteEnv(f"{host}:5555", connect_timeout_seconds=5.0)
    assert f"could not connect to an env at 'tcp://{host}:5555'" in str(caught.value)


def test_a_name_server_that_is_silent_does_not_outlast_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import threading

    real, release = socket.getaddrinfo, threading.Event()

    def silent(host: str, *args: Any, flags: int = 0, **kwargs: Any) -> Any:
        if flags & socket.AI_NUMERICHOST:
            return real(host, *args, flags=flags, **kwargs)
        release.wait(60.0)
        raise socket.gaierror("too late")

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    with (
        within(30.0),
        pytest.raises(TimeoutError, match=r"tcp://slow\.example:5555.*within 0\.1 s"),
    ):
        RemoteEnv("slow.example:5555", connect_timeout_seconds=0.1)
    release.set()


def test_every_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a name with an IPv6 address where the server listens on IPv4 only."""
    real = socket.getaddrinfo

    def two(host: str, port: int, **kwargs: Any) -> Any:
        if host == "both.example":
            if kwargs.get("flags"):
                raise socket.gaierror("a name")
            return real("::1", port, **kwargs) + real("127.0.0.1", port, **kwargs)
        return real(host, port, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", two)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with connect(TcpAddress("both.example", port), 5.0) as sock:
            assert sock.getpeername() == ("127.0.0.1", port)


def test_a_unix_listener_with_a_full_backlog_is_waited_for(tmp_path: Path) -> None:
    path = str(tmp_path / "busy.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(0)
        waiting = []
        with within(30.0), pytest.raises(TimeoutError):
            while True:
                waiting.append(connect(UnixAddress(path), 0.2))
        assert waiting
        for sock in waiting:
            sock.close()


def test_a_tcp_listener_with_a_full_backlog_is_unreachable() -> None:
    """The kernel drops the connection requests: what a black hole looks like from here."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        host, port = listener.getsockname()
        fill = []
        for _ in range(4):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex((host, port))
            fill.append(sock)
        with within(30.0), pytest.raises(TimeoutError) as caught:
            RemoteEnv(f"{host}:{port}", connect_timeout_seconds=0.3)
        assert f"could not connect to an env at 'tcp://{host}:{port}' within 0.3 s" in str(
            caught.value
        )
        assert "connect_timeout_seconds" in str(caught.value)
        for sock in fill:
            sock.close()


def test_a_server_that_is_bound_but_not_started_is_waited_for() -> None:
    with EnvServer(FunctionEnv()) as server:
        with within(30.0), pytest.raises(TimeoutError, match=server.address):
            RemoteEnv(server.address, connect_timeout_seconds=0.3)
        server.start()
        with RemoteEnv(server.address) as env:
            env.reset()


def test_no_descriptor_is_left_of_a_failed_dial() -> None:
    address = f"127.0.0.1:{free_port()}"
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        with pytest.raises(ConnectionError):
            RemoteEnv(address)
    assert len(os.listdir("/dev/fd")) == before
