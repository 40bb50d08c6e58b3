#!/usr/bin/env python3
"""Measures how much public Ansible content `remoor lint` accepts.

Reads `ansible.txt`: a repository, `role` or `playbook`, and a path on each line. Makes a directory
for each entry, asks `ansible-playbook --syntax-check` first, and lints what Ansible accepts. Prints
the number of entries with each result, and the faults that most entries have. An entry is accepted
in part if remoor would run it, but prints a warning about a task that fails if it is reached.
Prints also the number of tasks without such a fault. A refused entry may have more faults than the
lint reports, because names are looked up only after the tasks were read without a fault.

`inventories.yml` has what the user of an entry must supply: variables without a default, groups of
the inventory, and files. Without them a run of Ansible fails too, but only a run: a syntax check
evaluates no template. The file may not hide a fault of remoor, so it has no variable that Ansible
would not evaluate. A role of a collection finds its collection below `collections`.

A task that Ansible cannot run either, once it reaches it, does not count against an entry: the
warning says `in Ansible too`. The number of such entries is printed. An entry whose run fails in
Ansible for certain, on every host, has the message of Ansible as `fails` in `inventories.yml`. It
is counted separately, and only if remoor refuses it too.

The content stays outside of this repository: `--source` names a directory that contains a checkout
`OWNER+NAME` of each repository. Repositories that are missing are cloned into it. The script needs
PyYAML, which Ansible needs too.
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

import yaml

HERE = pathlib.Path(__file__).resolve().parent
# A lint that takes longer counts as refused, a syntax check as not accepted by Ansible.
SECONDS_MAX = 300
# The beginning of the warning about a task that a run might reach and that remoor cannot run; and
# of the warning about a task that Ansible cannot run either.
LATE = "this task fails if it is reached: "
LATE_IN_BOTH = "this task fails if it is reached, in Ansible too: "
# Keys of a play or a block that contain tasks.
SECTIONS = ["tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always"]
# The part of a path that names a file of a role; and a line of a result: file, line, and text.
INSIDE_ROLE = "/(tasks|handlers|defaults|vars|templates|meta)/.*"
PLACE = r"(?!  )(\S+?)(?::(\d+):\d+)?: (.*)"


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


def place_entry(entry, source, work, supplied):
    """Places an entry: a role with its siblings and a playbook that uses it, or a repository with a
    playbook. Returns the directory, the playbook and the roles of the entry."""
    repository, kind, place = entry
    checkout = clone(repository, source)
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", f"{repository}/{place}")
    into = work / name
    shutil.rmtree(into, ignore_errors=True)
    if kind == "playbook":
        shutil.copytree(checkout, into, symlinks=True, ignore_dangling_symlinks=True)
        directory = (into / place).parent
        place_supplied(supplied, checkout, directory)
        remove_other_playbooks(directory, pathlib.Path(place).name)
        roles = [path.parent for path in directory.glob("roles/**/tasks")]
        return name, directory, pathlib.Path(place).name, roles
    role = checkout / place
    # Where a user puts the roles, so that a role finds its siblings by the names that it uses.
    roles = into / "roles" / supplied.get("namespace", "")
    if place == ".":
        copy_tree(role, roles / "it")
        role_name = "it"
    else:
        copy_tree(role.parent, roles)
        role_name = os.path.join(supplied.get("namespace", ""), role.name)
    place_collection(checkout, role, into)
    names = [*supplied.get("roles_before", []), role_name]
    (into / "site.yml").write_text(f"- hosts: all\n  become: true\n  roles: [{', '.join(names)}]\n")
    (into / "hosts").write_text("host1\n")
    place_supplied(supplied, checkout, into)
    return name, into, "site.yml", [into / "roles" / role for role in names]


def remove_other_playbooks(directory, playbook):
    """Removes the playbooks beside an entry that the entry does not import, because the lint reads
    every playbook of a directory, and Ansible may not accept the others."""
    directory, plays = directory.resolve(), {}
    for path in directory.rglob("*.y*ml"):
        if {"roles", "collections", *SECTIONS} & set(path.relative_to(directory).parts[:-1]):
            continue
        try:
            node = yaml.compose(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (OSError, ValueError, yaml.YAMLError):
            continue
        items = node.value if isinstance(node, yaml.SequenceNode) else []
        items = [dict((key.value, value.value) for key, value in item.value if key.value)
                 for item in items if isinstance(item, yaml.MappingNode)]
        names = [value for item in items for key, value in item.items()
                 if re.fullmatch(r"(ansible\.builtin\.)?(import_playbook|include)", key)]
        if any("hosts" in item for item in items) or items and len(names) == len(items):
            plays[path] = names
    needed, waiting = set(), [directory / playbook]
    while waiting:
        path = waiting.pop()
        if path not in needed:
            needed.add(path)
            names = plays.get(path, [])
            # A computed name may be the name of any of them.
            if any("{" in name for name in names):
                return
            waiting += [(path.parent / name).resolve() for name in names]
    for path in plays.keys() - needed:
        path.unlink()


def copy_tree(origin, into):
    """Copies a directory, and what its symlinks outside of the directory refer to."""
    shutil.copytree(origin, into, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    for path in into.rglob("*"):
        target = origin / path.relative_to(into)
        if path.is_symlink() and not path.exists() and target.exists():
            path.unlink()
            (shutil.copytree if target.is_dir() else shutil.copy)(target, path)


def place_collection(checkout, role, into):
    """Installs the collection that contains a role beside the playbook, where Ansible finds the
    siblings and plugins that the role refers to by their full names."""
    for directory in [path for path in [role, *role.parents] if path.is_relative_to(checkout)]:
        if (directory / "galaxy.yml").exists():
            galaxy = yaml.safe_load((directory / "galaxy.yml").read_text()) or {}
            if {"namespace", "name"} <= galaxy.keys():
                collections = into / "collections" / "ansible_collections"
                copy_tree(directory, collections / galaxy["namespace"] / galaxy["name"])
            return


def place_supplied(supplied, checkout, into):
    """Writes what the user of an entry supplies: see `inventories.yml`."""
    for path in supplied.get("without", []):
        shutil.rmtree(into / path) if (into / path).is_dir() else (into / path).unlink()
    for path, origin in supplied.get("from_checkout", {}).items():
        (into / path).parent.mkdir(parents=True, exist_ok=True)
        (copy_tree if (checkout / origin).is_dir() else shutil.copy)(checkout / origin, into / path)
    for path, (repository, origin) in supplied.get("from_repository", {}).items():
        copy_tree(clone(repository, checkout.parent) / origin, into / path)
    for path, text in supplied.get("files", {}).items():
        (into / path).parent.mkdir(parents=True, exist_ok=True)
        (into / path).write_text(text)
    if supplied.get("groups") or supplied.get("hosts"):
        groups = {group: {"hosts": {"host1": None}} for group in supplied.get("groups", [])}
        hosts = {"host1": None, **supplied.get("hosts", {})}
        (into / "hosts").write_text(yaml.safe_dump({"all": {"hosts": hosts, "children": groups}}))
    if supplied.get("variables"):
        (into / "host_vars").mkdir(exist_ok=True)
        (into / "host_vars" / "host1.yml").write_text(yaml.safe_dump(supplied["variables"]))


def run(command, directory):
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True,
                              timeout=SECONDS_MAX, errors="replace",
                              env={**os.environ, "ANSIBLE_ROLES_PATH": "roles"})
        return done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        return 124, "timeout"


def find_tasks(node):
    """The tasks of a list of tasks, blocks or plays, as YAML nodes."""
    for task in node.value if isinstance(node, yaml.SequenceNode) else []:
        if isinstance(task, yaml.MappingNode):
            lists = [value for key, value in task.value if key.value in SECTIONS]
            yield from (inner for value in lists for inner in find_tasks(value))
            if not lists:
                yield task


def read_tasks(path):
    """The first and the last line of each task in a file."""
    if path.suffix not in [".yml", ".yaml"]:
        return []
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        nodes = list(yaml.compose_all(path.read_text(), Loader=loader))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return []
    tasks = [task for node in nodes for task in find_tasks(node)]
    return [(task.start_mark.line + 1, task.end_mark.line + 1) for task in tasks]


def count_tasks(directory, roles, lines):
    """The number of tasks that are accepted, and of all tasks: those of the entry's roles, and of
    each role or playbook in which the lint found something. A fault outside of a task, for example
    in a template, counts as a task."""
    found = [match.groups() for match in map(re.compile(PLACE).match, lines) if match]
    files = {directory / file for file, _, _ in found}
    named = {directory / re.sub(INSIDE_ROLE, "", file) for file, _, _ in found}
    for part in [role / part for role in {*roles, *named} for part in ["tasks", "handlers"]]:
        files.update(part.rglob("*.y*ml"))
    tasks = {path: read_tasks(path) for path in files}
    outside, refused = set(), set()
    for file, line, text in found:
        if not text.startswith("warning") or LATE in text:
            at = int(line or 0)
            around = [task for task in tasks[directory / file] if task[0] <= at <= task[1]]
            (refused if around else outside).add((file, around[-1] if around else line))
    total = sum(map(len, tasks.values())) + len(outside)
    return total - len(refused) - len(outside), total


def measure(arguments, entry):
    supplied = arguments.supplied.get(f"{entry[0]} {entry[2]}", {})
    name, directory, playbook, roles = place_entry(entry, arguments.source, arguments.work, supplied)
    inventory = ["-i", "hosts"] if (directory / "hosts").exists() else ["-i", "host1,"]
    code, text = run([arguments.ansible, *inventory, "--syntax-check", playbook], directory)
    if code != 0:
        return name, "not accepted by Ansible", [text.strip()[-300:]], (0, 0)
    code, text = run([arguments.remoor, "lint", "."], directory)
    state = "refused" if code != 0 else "accepted in part" if LATE in text else "accepted whole"
    if state == "refused" and "fails" in supplied:
        return name, "fails in Ansible too", [supplied["fails"], *text.splitlines()], (0, 0)
    return name, state, text.splitlines(), count_tasks(directory, roles, text.splitlines())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--remoor", default="remoor")
    parser.add_argument("--ansible", default="ansible-playbook")
    parser.add_argument("--list", type=pathlib.Path, default=HERE / "ansible.txt")
    parser.add_argument("--inventories", type=pathlib.Path, default=HERE / "inventories.yml")
    parser.add_argument("--only", default="", help="pattern of the entries that are measured")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    # Each program runs in the directory of its entry, so its path must be absolute.
    for name in ["remoor", "ansible"]:
        path = shutil.which(getattr(arguments, name))
        if path is None:
            parser.error(f"{getattr(arguments, name)} is not found")
        setattr(arguments, name, os.path.abspath(path))
    arguments.supplied = yaml.safe_load(arguments.inventories.read_text())
    entries = list(read_entries(arguments.list))
    unknown = arguments.supplied.keys() - {f"{entry[0]} {entry[2]}" for entry in entries}
    if unknown:
        parser.error(f"{arguments.inventories} has entries that the list lacks: {sorted(unknown)}")
    entries = [entry for entry in entries if re.search(arguments.only, " ".join(entry))]
    # Several entries share a repository, so all are cloned before the entries run side by side.
    more = [arguments.supplied.get(f"{entry[0]} {entry[2]}", {}) for entry in entries]
    more = {name for one in more for name, _ in one.get("from_repository", {}).values()}
    for repository in sorted({entry[0] for entry in entries} | more):
        clone(repository, arguments.source)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        results = list(pool.map(lambda entry: measure(arguments, entry), entries))
    states = collections.Counter(state for _, state, _, _ in results)
    excluded = states["not accepted by Ansible"] + states["fails in Ansible too"]
    asked = max(len(results) - excluded, 1)
    print(dict(states))
    for state in ["accepted whole", "accepted in part"]:
        print(f"{state}: {100 * states[state] / asked:.1f} % of {asked}")
    both = sum(any(LATE_IN_BOTH in line for line in lines) for _, _, lines, _ in results)
    print(f"entries with tasks that Ansible cannot run either: {both}")
    for name, state, lines, _ in results:
        if state == "fails in Ansible too":
            print(f"fails in Ansible too: {name}: {lines[0]}")
    accepted, total = (sum(counts) for counts in zip(*(tasks for _, _, _, tasks in results)))
    print(f"tasks: {accepted} of {total} accepted, {100 * accepted / max(total, 1):.2f} %")
    faults = collections.Counter()
    for _, state, lines, _ in results:
        if state in ["refused", "accepted in part"]:
            texts = (re.match(rf"\S+?:\d+:\d+: (?!warning)(.*)|.*({LATE}.*)", line) for line in lines)
            faults.update({(text.group(1) or text.group(2))[:120] for text in texts if text})
    for text, count in faults.most_common(40):
        print(f"{count:5} {text}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
