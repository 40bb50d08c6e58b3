#!/usr/bin/env python3
"""Measures how many of the files that a real run changes `remoor import` finds.

Reads `import.yml`: entries of `ansible.txt`, each with the variables with which its run does
something on a Debian 12 host. For each entry:

1. Runs the playbook with `remoor play` on a fresh host, to learn which packages it installs.
2. Installs these packages on another fresh host and lists its files. Runs the playbook there and
   lists the files again. So the differences are the work of the tasks, not of the packages.
3. Runs `remoor import` with the same playbook and inventory, and looks up each changed file in the
   fleet that was written. Checks also that the fleet lints, that each step of its cleanup names a
   task and deletes no data, and that each task with an unknown effect has a file and a line.

A file or symlink counts if the run created, removed or changed it: its content, target, mode or
owner. Directories are counted separately. A changed file belongs to a service if `files` or `state`
of the service match it; if it is the symlink of a unit in `units` or in the checks; or if it is a
file of accounts, and the checks name each account and membership that changed. These are not
counted: /dev, /proc, /run, /sys, /tmp, logs, caches, the records of dpkg and systemd, the backups
of account files, the files of packages that the run removes, PID files, locks and sockets, the
copies that `backup: true` leaves, and what remoor itself leaves. `IGNORED` lists the paths.

The hosts come from outside: `--fresh` is a shell command that makes a fresh host, `--remove` one
that removes it, and `--within` begins each command that must run on the network of the host.
`--ssh-config` is the SSH configuration in which the host is called `n1`. The host has a root login,
Python, and an apt archive with the packages of the entries. The host is removed at the end, also
after a failure. For example, with a program `lab` that does all this:

    tests/corpus/import.py --source ../corpus --work ../work --fresh "lab down; lab up 1" \\
        --remove "lab down" --within "lab op" --ssh-config LAB/ssh_config
"""
import argparse
import fnmatch
import json
import os
import pathlib
import re
import shlex
import shutil
import stat
import subprocess
import sys

import yaml

import ansible

SECONDS_MAX = 900
ACCOUNTS = ["/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow", "/etc/subuid", "/etc/subgid"]
# Modules of a cleanup that remove nothing but what their options name.
CLEANUP_MODULES = {"systemd", "file", "cron", "debug"}
# Steps that undo no single task.
STEPS_WITHOUT_TASK = {"Forget the units that were removed",
                      "Keep the accounts, because their files would have no owner"}
INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends"
PACKAGES = "dpkg-query -W -f '${db:Status-Abbrev} ${Package}\\n' | sed -n 's/^ii  *//p'"
# Paths that do not count: see above.
IGNORED = (
    r"^/(dev|proc|run|sys|tmp|lost\+found|mnt|var/(tmp|log|cache|backups|spool/mail)"
    r"|var/lib/(apt|dpkg|systemd|remoor|ucf|man-db|private|dbus|pam)"
    r"|root/\.(remoor|ansible|cache|bash_history)|usr/share/labrepo)(/|$)"
    r"|^/etc/(ld\.so\.cache|machine-id|\.pwd\.lock|\.updated|(passwd|group|shadow|gshadow|subuid|subgid)-)$"
    r"|^/var/\.updated$|/__pycache__(/|$)|\.(dpkg-(old|dist|new|bak)|pid|lock)$"
    r"|\.\d+\.\d{4}-\d\d-\d\d@\d\d:\d\d:\d\d~$"
)
# Prints the files of a host as JSON: path -> type, mode, owner, content; and the lines of the files
# of accounts. The files of packages are needed if the run removes a package.
LIST_FILES = r'''
import glob, hashlib, json, os, re, stat, sys
IGNORED = re.compile(sys.argv[2])
accounts = json.loads(sys.argv[1])
found, lines = {}, {}
for root, dirs, files in os.walk("/"):
    dirs[:] = [d for d in dirs if not IGNORED.search(os.path.join(root, d))]
    for path in [os.path.join(root, name) for name in dirs + files]:
        try:
            info = os.lstat(path)
            what = ""
            if stat.S_ISLNK(info.st_mode):
                what = os.readlink(path)
            elif stat.S_ISREG(info.st_mode) and not IGNORED.search(path):
                what = hashlib.sha256(open(path, "rb").read()).hexdigest()
        except OSError:
            continue
        if not IGNORED.search(path):
            found[path] = [stat.S_IFMT(info.st_mode), oct(info.st_mode), info.st_uid, info.st_gid, what]
        if path in accounts:
            lines[path] = open(path).read().splitlines()
packages = {os.path.basename(name)[:-5].split(":")[0]: open(name).read().splitlines()
            for name in glob.glob("/var/lib/dpkg/info/*.list")}
print(json.dumps({"found": found, "lines": lines, "packages": packages}))
'''
DIRECTORY, FILES = stat.S_IFDIR, [stat.S_IFREG, stat.S_IFLNK]


class Host:
    """A fresh host, reached over SSH."""

    def __init__(self, arguments):
        self.arguments = arguments

    def renew(self):
        subprocess.run(self.arguments.fresh, shell=True, check=True, capture_output=True, text=True)

    def remove(self):
        subprocess.run(self.arguments.remove, shell=True, check=False, capture_output=True)

    def run(self, script, stdin=""):
        within = shlex.split(self.arguments.within)
        command = [*within, "ssh", "-F", self.arguments.ssh_config, "n1", script]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True,
                              timeout=SECONDS_MAX, errors="replace")
        if done.returncode != 0:
            raise RuntimeError(f"{script[:80]}: {done.stdout[-300:]}{done.stderr[-600:]}")
        return done.stdout

    def list_files(self):
        words = [shlex.quote(word) for word in [json.dumps(ACCOUNTS), IGNORED]]
        return json.loads(self.run(f"python3 - {' '.join(words)}", LIST_FILES))

    def play(self, directory, playbook):
        """Runs the playbook. Raises RuntimeError if it fails."""
        within, config = shlex.split(self.arguments.within), self.arguments.ssh_config
        command = [*within, self.arguments.remoor, "play", playbook, "-i", "hosts", "--ssh-config", config]
        code, text = ansible.run(command, directory)
        if code != 0:
            failed = [line for line in text.splitlines() if re.search("failed|error|caused by", line)]
            raise RuntimeError("\n".join(failed)[-800:])


def place(arguments, entry, wanted):
    """Places an entry with what `inventories.yml` and `import.yml` supply. Returns its directory and
    its playbook."""
    repository, kind, path = entry
    supplied = dict(arguments.supplied.get(f"{repository} {path}", {}))
    supplied["variables"] = {**supplied.get("variables", {}), **wanted.get("variables", {})}
    supplied["files"] = {**supplied.get("files", {}), **wanted.get("files", {})}
    _, directory, playbook, _ = ansible.place_entry(entry, arguments.source, arguments.work, supplied)
    inventory = directory / "hosts"
    if not supplied.get("groups") and not supplied.get("hosts"):
        inventory.write_text("host1 ansible_host=n1\n")
    else:
        hosts = yaml.safe_load(inventory.read_text())
        hosts["all"]["hosts"]["host1"] = {"ansible_host": "n1"}
        inventory.write_text(yaml.safe_dump(hosts))
    if wanted.get("packages_before"):
        tasks = [{"apt": {"name": wanted["packages_before"]}}]
        site = yaml.safe_load((directory / playbook).read_text())
        (directory / playbook).write_text(yaml.safe_dump([{**site[0], "pre_tasks": tasks}]))
    return directory, playbook


def find_changes(before, after):
    """The files, symlinks and directories that differ, each with whether it is a directory."""
    gone = before["packages"].keys() - after["packages"].keys()
    removed = {path for package in gone for path in before["packages"][package]}
    old, new = before["found"], after["found"]
    changes = {}
    for path in old.keys() | new.keys():
        if old.get(path) != new.get(path) and not (path in removed and path not in new):
            kind = (new.get(path) or old[path])[0]
            if kind in [DIRECTORY, *FILES] and not re.search(IGNORED, path):
                changes[path] = kind == DIRECTORY
    return changes


def find_changed_accounts(before, after, path):
    """The accounts whose lines differ: (name, None), or (name, group) for a changed membership."""
    old, new = ({line.split(":")[0]: line.split(":") for line in listing["lines"].get(path, [])}
                for listing in (before, after))
    for name in old.keys() | new.keys():
        was, now = old.get(name), new.get(name)
        if path.endswith(("group", "gshadow")) and was and now and was[:3] == now[:3]:
            yield from ((user, name) for user in set(was[3].split(",")) ^ set(now[3].split(",")) if user)
        elif was != now:
            yield name, None


class Fleet:
    """The services of a fleet directory, with their checks."""

    def __init__(self, directory):
        config = yaml.safe_load((directory / "remoor.yml").read_text())
        services = config["services"].values()
        self.files = [path for service in services for path in service.get("files", [])]
        self.state = [path for service in services for path in service.get("state", [])]
        self.keep = [path for service in services for path in service.get("keep", [])]
        self.units = {unit for service in services for unit in service.get("units", [])}
        self.accounts = set()
        for path in directory.glob("checks/*.yml"):
            checks = yaml.safe_load(path.read_text())
            self.units |= {unit if "." in unit else f"{unit}.service" for unit in checks.get("service", {})}
            self.accounts |= {(name, None) for kind in ["user", "group"] for name in checks.get(kind, {})}
            self.accounts |= {(name, group) for name, check in checks.get("user", {}).items()
                              for group in check.get("groups", {}).get("contain-elements", [])}
        self.plays = yaml.safe_load((directory / "remoor-cleanup.yml").read_text()) or []

    def owns(self, path, before, after):
        if path in ACCOUNTS:
            accounts = set(find_changed_accounts(before, after, path))
            return bool(accounts) and accounts <= self.accounts
        link = re.fullmatch(r"/etc/systemd/system/(?:[^/]+\.(?:wants|requires)/)?([^/]+)", path)
        legacy = re.fullmatch(r"/etc/rc.\.d/[SK]\d\d([^/]+)", path)
        unit = link.group(1) if link else f"{legacy.group(1)}.service" if legacy else None
        kinds = {listing["found"][path][0] for listing in (before, after) if path in listing["found"]}
        if unit in self.units and kinds == {stat.S_IFLNK}:
            return True
        below = [glob.rstrip("/") + "/*" for glob in self.state]
        below += [glob + "*" for glob in self.files if glob.endswith("/")]
        return any(fnmatch.fnmatchcase(path, glob) for glob in [*self.files, *self.state, *below])

    def find_faults(self):
        """The steps of the cleanup that name no task, and those that delete data."""
        for step in [step for play in self.plays for step in play["tasks"]]:
            name, modules = step["name"], step.keys() & CLEANUP_MODULES
            if name not in STEPS_WITHOUT_TASK and not re.search(r"\([^ ]+:\d+", name):
                yield f"no task: {name}"
            if len(modules) != 1 or step.keys() - CLEANUP_MODULES - {"name", "tags", "loop", "vars"}:
                yield f"unexpected step: {name}"
            paths = [step["file"]["path"]] if "file" in step else []
            if paths == ["{{ item }}"]:
                paths = [path for own in step["vars"]["single_host_files"].values() for path in own]
            for path in paths:
                stays = [*self.keep, *self.state, *(glob.rstrip("/") + "/*" for glob in self.state)]
                if any(fnmatch.fnmatchcase(path, glob) for glob in stays):
                    yield f"deletes data: {name}"


def run_entry(host, directory, playbook):
    """Runs an entry on fresh hosts. Returns the files before and after, and the number of packages
    that it installs. Raises RuntimeError if the run fails."""
    host.renew()
    packages = set(host.run(PACKAGES).split())
    host.play(directory, playbook)
    installed = sorted(set(host.run(PACKAGES).split()) - packages)
    host.renew()
    if installed:
        host.run(f"apt-get update -qq; {INSTALL} {' '.join(installed)}")
    before = host.list_files()
    host.play(directory, playbook)
    return before, host.list_files(), len(installed)


def measure(arguments, host, entry, wanted):
    """The result of an entry as a mapping."""
    directory, playbook = place(arguments, entry, wanted)
    kept = directory.with_name(directory.name + ".run.json")
    if not arguments.again or not kept.exists():
        kept.write_text(json.dumps(run_entry(host, directory, playbook)))
    before, after, installed = json.loads(kept.read_text())
    into = directory.with_name(directory.name + ".fleet")
    shutil.rmtree(into, ignore_errors=True)
    command = [arguments.remoor, "import", playbook, "-i", "hosts", "-o", "json", into]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=SECONDS_MAX)
    summary = json.loads(done.stdout)
    if "import" not in summary:
        raise RuntimeError(f"import: {done.stdout[-500:]}")
    code, text = ansible.run([arguments.remoor, "lint", str(into)], directory)
    fleet = Fleet(into)
    changes = find_changes(before, after)
    files = sorted(path for path, is_directory in changes.items() if not is_directory)
    unknown = summary["import"]["unknown"]
    faults = list(fleet.find_faults())
    faults += [] if code == 0 else [f"lint: {text[-500:]}"]
    faults += [f"no place: {fault}" for fault in unknown if not fault["file"] or not fault["line"]]
    return {"files": files, "missed": [path for path in files if not fleet.owns(path, before, after)],
            "directories": sum(changes.values()), "unknown": len(unknown), "faults": faults,
            "steps": sum(len(play["tasks"]) for play in fleet.plays), "packages": installed}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--fresh", required=True)
    parser.add_argument("--remove", required=True)
    parser.add_argument("--within", default="")
    parser.add_argument("--ssh-config", required=True)
    parser.add_argument("--remoor", default="remoor")
    parser.add_argument("--only", default="", help="pattern of the entries that are measured")
    parser.add_argument("--again", action="store_true", help="import again, without another run")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    path = shutil.which(arguments.remoor)
    if path is None:
        parser.error(f"{arguments.remoor} is not found")
    arguments.remoor = os.path.abspath(path)
    arguments.work.mkdir(parents=True, exist_ok=True)
    arguments.supplied = yaml.safe_load((ansible.HERE / "inventories.yml").read_text())
    listed = {f"{entry[0]} {entry[2]}": entry for entry in ansible.read_entries(ansible.HERE / "ansible.txt")}
    chosen = yaml.safe_load((ansible.HERE / "import.yml").read_text())
    results, host = {}, Host(arguments)
    try:
        for name in [name for name in chosen if re.search(arguments.only, name)]:
            try:
                results[name] = measure(arguments, host, listed[name], chosen[name] or {})
            except (RuntimeError, subprocess.SubprocessError, ValueError) as error:
                results[name] = {"fails": str(error)[-800:]}
            show(name, results[name])
    finally:
        host.remove()
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=1))
    good = [result for result in results.values() if "fails" not in result]
    changed, missed = (sum(len(result[key]) for result in good) for key in ["files", "missed"])
    print(f"{len(good)} entries: {changed - missed} of {changed} changed files belong to a service, "
          f"{100 * (changed - missed) / max(changed, 1):.1f} %")
    sys.exit(any(result.get("faults") or "fails" in result for result in results.values()))


def show(name, result):
    if "fails" in result:
        print(f"{name}: fails: {result['fails']}", flush=True)
        return
    files, missed = len(result["files"]), len(result["missed"])
    print(f"{name}: {files - missed} of {files} files; {result['directories']} directories; "
          f"{result['packages']} packages; {result['steps']} steps; unknown: {result['unknown']}", flush=True)
    for line in [f"missed {path}" for path in result["missed"]] + result["faults"]:
        print(f"  {line}", flush=True)


if __name__ == "__main__":
    main()
