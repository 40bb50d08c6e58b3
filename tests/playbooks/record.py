#!/usr/bin/env python3
"""Runs playbooks of this directory with the ansible-playbook on PATH and records the results.

    record.py [--to DIR] [NAME..]     into DIR/NAME.json (recorded/ here); without names all of them

A playbook is run twice, or once for each line `# play: OPTIONS` that it begins with. `tests/it/playbooks.rs` does the same with
remoor and compares. `web` is the address of a server of the test's own (`web.py`). Times, owners and the names of backups are left out.

A playbook with a line `# private: DIR..` changes these directories of the system. It runs in a mount namespace with private copies
of them, so it needs root. `deb822_repository` needs python-debian in Ansible's Python, and `apt_repository` the package python3-apt.
"""

import json
import os
import re
import shlex
import stat
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import web  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
BACKUP = re.compile(r"\.\d+\.\d{4}-\d\d-\d\d@\d\d:\d\d:\d\d~$")


def runs_of(text):
    """The options of each run."""
    found = [line[len("# play:"):].strip() for line in text.splitlines() if line.startswith("# play:")]
    return found or ["", ""]


def tree_of(top):
    """The tree below `top`: mode and content of files, mode of directories, targets of links, hard links."""
    tree, seen = {}, {}
    for folder, folders, files in os.walk(top):
        folders.sort()
        for name in sorted(folders + files):
            path = os.path.join(folder, name)
            own = os.lstat(path)
            key = BACKUP.sub(".BACKUP~", os.path.relpath(path, top))
            mode = format(stat.S_IMODE(own.st_mode), "04o")
            if stat.S_ISLNK(own.st_mode):
                tree[key] = "link to " + os.readlink(path).replace(top, "DIR")
            elif stat.S_ISDIR(own.st_mode):
                tree[key] = mode + " directory"
            elif (own.st_dev, own.st_ino) in seen:
                tree[key] = "same as " + seen[own.st_dev, own.st_ino]
            else:
                seen[own.st_dev, own.st_ino] = key
                with open(path, "rb") as file:
                    tree[key] = mode + " " + file.read().decode("utf-8", "replace").replace(top, "DIR")
    return dict(sorted(tree.items()))


def private_copies(text, ground):
    """Copies the directories that the playbook changes, and returns the beginning of the command that runs with the copies."""
    dirs = [path for line in text.splitlines() if line.startswith("# private:") for path in line.split()[2:]]
    script = "set -e; "
    for path in dirs:
        copy = ground + "/private" + path
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        subprocess.run(["cp", "-a", path, copy], check=True)
        script += f"mount --bind {shlex.quote(copy)} {shlex.quote(path)}; "
    return ["unshare", "-m", "sh", "-c", script + 'exec "$0" "$@"'] if dirs else []


def run(name, options, top, home, address, begin):
    """One run: exit code, and for each host the tasks in order and the recap."""
    told = os.path.join(home, "told.json")
    if os.path.exists(told):
        os.remove(told)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": home,
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_CONFIG": os.path.join(home, "ansible.cfg"),
        "ANSIBLE_LOCAL_TEMP": os.path.join(home, "local"),
        "ANSIBLE_REMOTE_TEMP": os.path.join(home, "remote"),
        "ANSIBLE_CALLBACK_PLUGINS": os.path.join(HERE, "callback"),
        "ANSIBLE_STDOUT_CALLBACK": "told",
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "ANSIBLE_PIPELINING": "true",
        "PYTHONDONTWRITEBYTECODE": "1",
        "ANSIBLE_DEPRECATION_WARNINGS": "false",
        "REMOOR_TOLD": told,
    }
    command = [*begin, "ansible-playbook", name + ".yml", "-i", "hosts.ini", "--connection", "local"]
    command += ["-e", json.dumps({"dir": top, "web": address}), *shlex.split(options)]
    done = subprocess.run(command, cwd=HERE, env=env, umask=0o022, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if not os.path.exists(told):
        print(f"{name}: {done.stdout}{done.stderr}", file=sys.stderr)
        return {"options": options, "code": done.returncode, "hosts": {}}
    with open(told, encoding="utf-8") as file:
        return {"options": options, "code": done.returncode, "hosts": json.load(file)}


def record(name, version, address):
    with open(os.path.join(HERE, name + ".yml"), encoding="utf-8") as file:
        text = file.read()
    options = runs_of(text)
    with tempfile.TemporaryDirectory() as ground, tempfile.TemporaryDirectory() as home:
        # No settings of the user.
        open(os.path.join(home, "ansible.cfg"), "w", encoding="utf-8").close()
        top = os.path.join(os.path.realpath(ground), "top")
        os.mkdir(top, 0o755)
        begin = private_copies(text, os.path.realpath(ground))
        runs = [run(name, one, top, home, address, begin) for one in options]
        command = f"ansible-playbook {name}.yml -i hosts.ini --connection local -e dir=DIR"
        return {"ansible": version, "command": command, "runs": runs, "tree": tree_of(top)}


def main():
    names = sys.argv[1:]
    to = os.path.join(HERE, "recorded")
    if names[:1] == ["--to"]:
        to, names = names[1], names[2:]
    names = names or sorted(n[:-4] for n in os.listdir(HERE) if n.endswith(".yml"))
    said = subprocess.run(["ansible-playbook", "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"\[core ([^\]]+)\]", said).group(1)
    address = web.start()
    for name in names:
        answer = record(name, version, address)
        with open(os.path.join(to, name + ".json"), "w", encoding="utf-8") as file:
            json.dump(answer, file, indent=1, ensure_ascii=False)
            file.write("\n")


main()
