"""Runs on the host of benches/checks.rs: creates the checked objects, and times one command. Prints JSON."""

import hashlib
import json
import os
import statistics
import subprocess
import sys
import time

FILES = "/srv/files"
UNITS = [f"bench-{n}.service" for n in range(20)]
PORTS = range(18000, 18020)


def make():
    os.makedirs(FILES, exist_ok=True)
    sums = {}
    for n in range(1000):
        content = os.urandom(2048)
        path = f"{FILES}/{n}"
        with open(path, "wb") as file:
            file.write(content)
        sums[path] = hashlib.sha256(content).hexdigest()
    for unit in UNITS:
        with open(f"/etc/systemd/system/{unit}", "w") as file:
            file.write("[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n")
    listen = "import socket, signal\ns = [socket.create_server(('127.0.0.1', p)) for p in range(%d, %d)]\nsignal.pause()" % (PORTS[0], PORTS[-1] + 1)
    with open("/srv/listen.py", "w") as file:
        file.write(listen)
    run = lambda *argv: subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    run("systemctl", "daemon-reload")
    run("systemctl", "enable", "--now", *UNITS)
    run("systemd-run", "--unit=bench-listen", "python3", "/srv/listen.py")
    time.sleep(1)
    some = dict(list(sums.items())[:60])
    goss = {
        "file": {path: {"exists": True, "sha256": sha} for path, sha in some.items()},
        "service": {unit.removesuffix(".service"): {"enabled": True, "running": True} for unit in UNITS},
        "port": {f"tcp:{port}": {"listening": True} for port in PORTS},
    }
    everything = {"file": {path: {"exists": True, "sha256": sha} for path, sha in sums.items()}}
    for name, suite in [("hundred", goss), ("thousand", everything)]:
        with open(f"/srv/{name}.json", "w") as file:
            json.dump(suite, file)
    with open("/srv/test_hundred.py", "w") as file:
        file.write("import pytest\n")
        file.write(f"@pytest.mark.parametrize('path, sha', {list(some.items())!r})\ndef test_file(host, path, sha):\n")
        file.write("    assert host.file(path).sha256sum == sha\n")
        file.write(f"@pytest.mark.parametrize('unit', {UNITS!r})\ndef test_service(host, unit):\n")
        file.write("    assert host.service(unit).is_enabled and host.service(unit).is_running\n")
        file.write(f"@pytest.mark.parametrize('port', {list(PORTS)!r})\ndef test_port(host, port):\n")
        file.write("    assert host.socket(f'tcp://127.0.0.1:{port}').is_listening\n")


def measure(rounds, argv):
    times = []
    for _ in range(rounds):
        began = time.monotonic()
        done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/srv")
        times.append(time.monotonic() - began)
        if done.returncode != 0:
            sys.exit(f"{argv} ended with {done.returncode}")
    print(json.dumps([round(1000 * f(times)) for f in (statistics.median, min, max)]))


if sys.argv[1] == "make":
    make()
else:
    measure(int(sys.argv[1]), sys.argv[2:])
