"""The live server: it shows, refuses strangers, and writes nothing."""

import hashlib
import json
import re
import signal
import socket
import subprocess
import sys

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from nfdrl.agent import Agent
from nfdrl.cli import main
from nfdrl.runs.session import Run
from nfdrl.torsos import TorsoSizes
from nfdrl.training.config import TrainConfig
from nfdrl.viewer.guard import Rules
from nfdrl.viewer.messages import read
from nfdrl.viewer.schema import Curve, Hello, Ridge, Runs, StateTable, Step

SMALL = TrainConfig(learning_starts=64, batch_size=16, torso=TorsoSizes(mlp=(16, 16)), report_every=50)
PATIENCE = 300  # seconds: the machine may be busy


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a run of two checkpoints, a saved agent, and a figure."""
    folder = tmp_path_factory.mktemp("watched")
    Run(folder / "pole", "nfdrl", "CartPole-v1", config=SMALL, checkpoint_every=100).train(300, progress=False)
    Agent("c51", "FrozenLake-v1", config=SMALL).learn(100, progress=False).save(folder / "lake")
    (folder / "theory").mkdir()
    (folder / "theory" / "figure.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (folder / "theory" / "metrics.json").write_text(
        json.dumps({"experiment": "theory", "command": "nfdrl paper theory"})
    )
    return folder


def get(address, **words):
    return httpx.get(address, timeout=PATIENCE, **words)


def started(*words):
    """The server in a process of its own, and the address that it printed."""
    process = subprocess.Popen([sys.executable, "-m", "nfdrl", "watch", *words, "--port", "0"], stdout=subprocess.PIPE)
    line = process.stdout.readline().decode()
    return process, re.search(r"http://\S+", line)[0]


def stopped(process):
    process.send_signal(signal.SIGINT)
    process.wait(PATIENCE)
    process.stdout.close()


@pytest.fixture(scope="module")
def server(runs):
    process, address = started(str(runs))
    yield address.rstrip("/")
    stopped(process)


@pytest.fixture(scope="module")
def strict(runs):
    """A server that other machines could reach."""
    process, address = started(str(runs), "--host", "0.0.0.0")
    yield address
    stopped(process)


@pytest.fixture(scope="module")
def ids(server):
    found = read(Runs, get(f"{server}/api/runs").json())
    return {run.name: run.id for run in found.runs}


def play(server, run, **headers):
    address = f"{server.replace('http', 'ws')}/api/play/{run}"
    return connect(address, origin=headers.pop("origin", server), open_timeout=PATIENCE, **headers)


def test_the_server_listens_on_this_machine_alone(server):
    port = int(server.rpartition(":")[2])
    assert server.startswith("http://127.0.0.1:")
    with socket.socket() as other:
        other.settimeout(1)
        assert other.connect_ex(("127.0.0.2", port)) != 0


def test_every_answer_fits_the_schema(server, ids):
    assert set(ids) == {"pole", "lake"}
    (curve,) = [read(Curve, found) for found in get(f"{server}/api/curves").json()]
    assert "episode_return" in curve.columns
    assert get(f"{server}/api/curves?have={curve.run}:{curve.offset}").json() == []
    table = read(StateTable, get(f"{server}/api/table/{ids['lake']}").json())
    assert len(table.states) == 11
    ridge = read(Ridge, get(f"{server}/api/ridge/{ids['pole']}").json())
    assert ridge.steps == [100, 200, 300]
    (figure,) = get(f"{server}/api/figures").json()
    assert figure["command"] == "nfdrl paper theory"
    assert get(f"{server}/{figure['image']}").headers["content-type"].startswith("image/svg+xml")


def test_an_agent_plays_steps_and_obeys(server, ids):
    with play(server, ids["pole"]) as socket:
        hello = read(Hello, json.loads(socket.recv(60)))
        assert (hello.agent.run.name, hello.agent.step) == ("pole", 300)
        socket.send(json.dumps({"seed": 7, "steps": 3}))
        steps = [read(Step, json.loads(socket.recv(60))) for _ in range(3)]
        assert [(step.t, step.seed) for step in steps] == [(0, 7), (1, 7), (2, 7)]
        with pytest.raises(TimeoutError):
            socket.recv(0.5)  # it plays no further than it was asked to
        socket.send(json.dumps({"seed": 7, "steps": 1}))
        again = read(Step, json.loads(socket.recv(60)))
        assert (again.t, again.laws) == (0, steps[0].laws)


def test_the_wish_for_another_risk_changes_what_the_agent_goes_by(server, ids):
    with play(server, ids["pole"]) as socket:
        socket.recv(60)
        socket.send(json.dumps({"risk": "cvar:0.1", "steps": 1}))
        assert read(Step, json.loads(socket.recv(60))).risk == "cvar:0.1"


@pytest.mark.parametrize(
    "wish", ["no json", "[]", '{"speed": "fast"}', '{"risk": "import os"}', '{"seed": -1}', '{"x": 1}', '{"seed":' * 99]
)
def test_a_senseless_wish_ends_the_connection_and_nothing_else(server, ids, wish):
    with play(server, ids["pole"]) as socket:
        socket.recv(60)
        socket.send(wish)
        with pytest.raises(Exception, match="1008"):
            socket.recv(60)
    assert get(f"{server}/api/runs").status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "192.168.0.7", "", "localhost.evil.example:80"]
)
def test_a_name_that_is_not_ours_is_refused(server, host):
    for path in ("/", "/api/runs", "/static/page.js"):
        assert get(server + path, headers={"Host": host}).status_code in (400, 421)


def test_two_hosts_in_one_request_are_refused(server):
    name, port = server.removeprefix("http://").split(":")
    with socket.create_connection((name, int(port))) as raw:
        raw.sendall(f"GET /api/runs HTTP/1.1\r\nHost: {name}:{port}\r\nHost: evil.example\r\n\r\n".encode())
        assert raw.recv(100).split()[1] in (b"400", b"421")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1"])
def test_a_page_of_another_origin_is_refused(server, ids, origin):
    assert get(f"{server}/api/runs", headers={"Origin": origin}).status_code == 403
    with pytest.raises(InvalidStatus) as refused:
        play(server, ids["pole"], origin=origin)
    assert refused.value.response.status_code == 403


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80"])
def test_a_websocket_by_a_name_that_is_not_ours_is_refused(server, ids, host):
    asked = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    asked |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Host": host, "Origin": f"http://{host}"}
    assert get(f"{server}/api/play/{ids['pole']}", headers=asked).status_code == 403


def test_a_websocket_without_an_origin_is_refused(server, ids):
    with pytest.raises(InvalidStatus):
        play(server, ids["pole"], origin=None)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_can_be_sent_but_questions(server, method):
    for path in ("/", "/api/runs", "/api/curves"):
        assert httpx.request(method, server + path, timeout=PATIENCE).status_code == 405


@pytest.mark.parametrize(
    "name", ["..%2f..%2fetc%2fpasswd", "pole", "../pole", "%2e%2e", "theory", "pole%00", "%2fetc%2fpasswd"]
)
def test_names_and_paths_lead_nowhere(server, name):
    for place in ("table", "ridge", "figure"):
        assert get(f"{server}/api/{place}/{name}").status_code == 404
    assert get(f"{server}/static/{name}").status_code == 404


def test_a_websocket_to_an_unknown_run_is_closed(server):
    with play(server, "pole") as socket, pytest.raises(Exception, match="no such agent"):
        socket.recv(30)


def test_the_policy_forbids_inline_scripts_and_foreign_sources(server):
    answer = get(server)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert not re.search(r"<script(?! type=\"module\" src=)|<style|style=| on\w+=", answer.text)
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_watching_writes_nothing(server, ids, runs):
    def everything():
        files = sorted(path for path in runs.rglob("*") if path.is_file())
        return {str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).digest()) for path in files}

    before = everything()
    for path in ("api/runs", "api/curves", f"api/table/{ids['lake']}", f"api/ridge/{ids['pole']}", "api/figures"):
        assert get(f"{server}/{path}").status_code == 200
    with play(server, ids["lake"]) as socket:
        socket.recv(60)
        socket.send('{"steps": 2}')
        socket.recv(60)
    assert everything() == before


def test_another_address_needs_the_token_that_was_printed(strict):
    address, _, token = strict.partition("/?token=")
    address = address.replace("0.0.0.0", "127.0.0.1")
    assert len(token) >= 24
    for path in ("/", "/api/runs", "/static/page.js", "/?token=wrong", f"/api/runs?token={token}"):
        assert get(address + path).status_code == 401
    with httpx.Client(timeout=PATIENCE) as visitor:
        arrived = visitor.get(f"{address}/?token={token}", follow_redirects=True)
        assert (arrived.status_code, str(arrived.url)) == (200, f"{address}/")
        assert visitor.get(f"{address}/api/runs").status_code == 200
        cookie = arrived.history[0].headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
    with pytest.raises(InvalidStatus):
        play(address, "x")
    assert get(address, headers={"Host": "evil.example", "Cookie": f"nfdrl={token}"}).status_code == 421


@pytest.mark.parametrize(
    ("host", "token"),
    [("127.0.0.1", False), ("localhost", False), ("::1", False), ("0.0.0.0", True), ("192.168.1.5", True)],
)
def test_only_the_loopback_goes_without_a_token(host, token):
    assert (Rules.for_host(host).token is not None) == token


def test_every_start_has_a_token_of_its_own():
    assert Rules.for_host("0.0.0.0").token != Rules.for_host("0.0.0.0").token


def test_a_port_in_use_is_explained_in_one_line(server, runs, capsys):
    assert main(["watch", str(runs), "--port", server.rpartition(":")[2]]) == 2
    error = capsys.readouterr().err
    assert "name another --port" in error
    assert error.count("\n") == 1


def test_a_missing_extra_is_named(runs, capsys, monkeypatch):
    monkeypatch.setattr("nfdrl.cli.watch.find_spec", lambda _: None)
    assert main(["watch", str(runs)]) == 2
    assert 'pip install "nfdrl[viewer]"' in capsys.readouterr().err
