#!/usr/bin/env python3
"""Measures how much public Ansible content `remoor lint` accepts.

Reads `ansible.txt`: a repository, `role` or `playbook`, and a path on each line. Makes a directory
for each entry, asks `ansible-playbook --syntax-check` first, and lints what Ansible accepts. Prints
the number of entries with each result, and the faults that most entries have. An entry is accepted
in part if remoor would run it, but prints a warning about a task that fails if it is reached.

The content stays outside of this repository: `--source` names a directory that contains a checkout
`OWNER+NAME` of each repository. Repositories that are missing are cloned into it.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
# A lint that takes longer counts as refused, a syntax check as not accepted by Ansible.
SECONDS_MAX = 300
# The beginning of the warning about a task that a run might reach and that remoor cannot run.
LATE = "this task fails if it is reached"


def read_entries(path):
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            repository, kind, place = line.split()
            yield repository, kind, place


def clone(repository, source):
    into = source / repository.replace("/", "+")
    if not into.exists():
        url = f"https://github.com/{repository}"
        subprocess.run(["git", "clone", "--quiet", "--depth=1", url, into], check=True)
    return into


def place_entry(entry, source, work):
    """Returns the directory of an entry: a role with its siblings and a playbook that uses it, or
    the directory of a playbook."""
    repository, kind, place = entry
    checkout = clone(repository, source)
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", f"{repository}/{place}")
    into = work / name
    shutil.rmtree(into, ignore_errors=True)
    if kind == "playbook":
        shutil.copytree(checkout, into, symlinks=True, ignore_dangling_symlinks=True)
        return name, (into / place).parent, pathlib.Path(place).name
    role = checkout / place
    if place == ".":
        shutil.copytree(role, into / "roles" / "it", symlinks=True)
        role_name = "it"
    else:
        shutil.copytree(role.parent, into / "roles", symlinks=True)
        role_name = role.name
    (into / "site.yml").write_text(f"- hosts: all\n  become: true\n  roles: [{role_name}]\n")
    (into / "hosts").write_text("host1\n")
    return name, into, "site.yml"


def run(command, directory):
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True,
                              timeout=SECONDS_MAX, errors="replace",
                              env={**os.environ, "ANSIBLE_ROLES_PATH": "roles"})
        return done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        return 124, "timeout"


def measure(arguments, entry):
    name, directory, playbook = place_entry(entry, arguments.source, arguments.work)
    inventory = ["-i", "hosts"] if (directory / "hosts").exists() else ["-i", "host1,"]
    code, text = run([arguments.ansible, *inventory, "--syntax-check", playbook], directory)
    if code != 0:
        return name, "not accepted by Ansible", [text.strip()[-300:]]
    code, text = run([arguments.remoor, "lint", "."], directory)
    if code != 0:
        return name, "refused", text.splitlines()
    return name, "accepted in part" if LATE in text else "accepted whole", text.splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--remoor", default="remoor")
    parser.add_argument("--ansible", default="ansible-playbook")
    parser.add_argument("--list", type=pathlib.Path, default=HERE / "ansible.txt")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    # Each program runs in the directory of its entry, so its path must be absolute.
    for name in ["remoor", "ansible"]:
        path = shutil.which(getattr(arguments, name)) or parser.error(f"{getattr(arguments, name)} is not found")
        setattr(arguments, name, os.path.abspath(path))
    entries = list(read_entries(arguments.list))
    # Several entries share a repository, so all are cloned before the entries run side by side.
    for repository in sorted({entry[0] for entry in entries}):
        clone(repository, arguments.source)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda entry: measure(arguments, entry), entries))
    states = collections.Counter(state for _, state, _ in results)
    asked = max(len(results) - states["not accepted by Ansible"], 1)
    print(dict(states))
    for state in ["accepted whole", "accepted in part"]:
        print(f"{state}: {100 * states[state] / asked:.1f} % of {asked}")
    faults = collections.Counter()
    for _, state, lines in results:
        if state in ["refused", "accepted in part"]:
            texts = (re.match(rf"\S+?:\d+:\d+: (?!warning)(.*)|.*({LATE}.*)", line) for line in lines)
            faults.update({(text.group(1) or text.group(2))[:120] for text in texts if text})
    for text, count in faults.most_common(40):
        print(f"{count:5} {text}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
