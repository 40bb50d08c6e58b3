#!/usr/bin/env python3
"""Runs each topic of `topics.txt` with remoor and compares the results with those of Ansible.

The program compares the written files with their modes, the success of each run, and the numbers of
the recap. Each topic runs twice normally, then with `--check`.
`--record` runs Ansible and writes its results to `topics.json`. Prints the differences of each
topic, and how many topics are equal. The exit code is 1 if the differing topics are not exactly those
in `DIFFERENCES`.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ANSWERS = HERE / "topics.json"
SECONDS_MAX = 300
NUMBERS = ["ok", "changed", "failed", "skipped", "rescued", "ignored", "unreachable"]
RUNS = {"first": [], "second": [], "check": ["--check"]}
HOSTS = """[web]
h1
h2
[two]
h2
h3
[all:vars]
ansible_connection=local
ansible_python_interpreter={}
"""
# The topics that differ, with the reason.
DIFFERENCES = {
    "any_errors_fatal": "the other hosts finish their current task before they end",
    "facts": "gathering facts is no task, and there are no facts about Python",
    "failure_ends_host": "`ansible_play_hosts` contains hosts that failed in the same play",
    "until_retries": "with `--check`, a command without a result ends the run",
}
# Files with random content, by topic. Their modes and lengths are compared.
RANDOM_FILES = {"lookup_password": {"secret"}}


def read_topics(path):
    """Returns the files of each topic: `{name: {path: content}}`."""
    topics, lines = {}, None
    for line in path.read_text().splitlines():
        if found := re.match(r"topic (\S+)$", line):
            files = topics.setdefault(found.group(1), {})
            lines = None
        elif found := re.match(r"file (\S+)$", line):
            lines = files.setdefault(found.group(1), [])
        elif lines is not None:
            lines.append(line)
    return {name: {path: "\n".join(lines).rstrip("\n") + "\n" for path, lines in files.items()}
            for name, files in topics.items()}


def write_topic(files, directory, python):
    shutil.rmtree(directory, ignore_errors=True)
    for path, content in {**files, "password": "topics\n", "hosts": HOSTS.format(python)}.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)


def read_tree(directory):
    """Mode and content of each file below the directory, as text."""
    found = {}
    for path in sorted(directory.rglob("*")):
        mode = oct(stat.S_IMODE(path.lstat().st_mode))
        if path.is_symlink():
            content = os.readlink(path)
        else:
            content = path.read_text(errors="replace") if path.is_file() else ""
        found[str(path.relative_to(directory))] = f"{mode} {content}"
    return found


def shorten_names(files, inner):
    """Replaces the path of the output directory in the names of files that a run has fetched."""
    inside = [name for name in files if f"/{inner}" in name]
    above = {str(parent) for name in inside
             for parent in pathlib.PurePath(name.split(f"/{inner}")[0] + f"/{inner}").parents}
    prefixes = {name.split(f"/{inner}")[0] for name in inside}
    above = {name for name in above if any(name.startswith(f"{prefix}/") for prefix in prefixes)}
    return {name.replace(inner, "OUT"): content for name, content in files.items() if name not in above}


def run(command, directory, out):
    """Whether one run succeeds, the recap of each host, the written files, and the output."""
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "False",
                   "ANSIBLE_HOST_PATTERN_MISMATCH": "ignore", "TOPIC_ENV": "set"}
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=SECONDS_MAX, env=environment)
    except subprocess.TimeoutExpired:
        return {"success": "timeout", "recap": {}, "files": {}}, ""
    text = done.stdout + done.stderr
    recap = {}
    for host, counted in re.findall(r"^(\S+)\s+:\s+(ok=.*)$", text, re.MULTILINE):
        pairs = dict(re.findall(r"(\w+)=(\d+)", counted))
        recap[host] = " ".join(f"{key}={pairs.get(key, 0)}" for key in NUMBERS)
    files = shorten_names(read_tree(out), str(out).strip("/"))
    files = {name: content.replace(str(out), "OUT") for name, content in files.items()}
    return {"success": done.returncode == 0, "recap": recap, "files": files}, text


def run_topic(name, files, program, arguments):
    """The results of the three runs of a topic, and their outputs."""
    directory, out = arguments.work / name / "directory", arguments.work / name / "out"
    write_topic(files, directory, arguments.python)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    vault = any("$ANSIBLE_VAULT" in content for content in files.values())
    command = [*program, "site.yml", "-i", "hosts", "-e", f"out={out}"]
    command += ["--vault-password-file", "password"] if vault else []
    results, outputs = {}, {}
    for label, options in RUNS.items():
        results[label], outputs[label] = run([*command, *options], directory, out)
    return results, outputs


def hide_random(topic, result):
    """The result with the lengths of random files instead of their contents."""
    def hide(name, text):
        mode, content = text.split(" ", maxsplit=1)
        return f"{mode} {len(content)} characters" if name in RANDOM_FILES.get(topic, ()) else text
    return {**result, "files": {name: hide(name, text) for name, text in result["files"].items()}}


def find_differences(topic, expected, actual):
    found = []
    for label in RUNS:
        left, right = hide_random(topic, expected[label]), hide_random(topic, actual[label])
        if left["success"] != right["success"]:
            found.append(f"{label}: expected success {left['success']}, got {right['success']}")
        # With `--check`, remoor counts a command that would run as changed, Ansible as skipped.
        for key in ["files"] if label == "check" else ["recap", "files"]:
            for part in sorted({*left[key], *right[key]}):
                if left[key].get(part) != right[key].get(part):
                    found.append(f"{label}: {part}: expected {left[key].get(part)!r}, got {right[key].get(part)!r}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("topic", nargs="*", help="run only these topics, and print the outputs")
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--remoor", default="remoor")
    parser.add_argument("--python", default=sys.executable, help="the Python of the hosts")
    parser.add_argument("--record", metavar="ANSIBLE_PLAYBOOK", help="record the results of Ansible")
    arguments = parser.parse_args()
    arguments.work = arguments.work.resolve()
    topics = read_topics(HERE / "topics.txt")
    chosen = {name: topics[name] for name in arguments.topic or topics}
    program = [arguments.record] if arguments.record else [arguments.remoor, "play", "--force"]
    program[0] = os.path.abspath(shutil.which(program[0]) or parser.error(f"{program[0]} is not found"))
    # Two runs of remoor on one machine exclude each other.
    answers = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
    if missing := [name for name in chosen if not arguments.record and name not in answers]:
        parser.error(f"no recorded result of {', '.join(missing)}; next: --record")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() if arguments.record else 1) as pool:
        runs = pool.map(lambda topic: run_topic(*topic, program, arguments), chosen.items())
        differing = []
        for name, (results, outputs) in zip(chosen, runs):
            if arguments.topic:
                print(*(f"--- {name}, {label}\n{text}" for label, text in outputs.items()), sep="\n")
            if arguments.record:
                answers[name] = results
                continue
            if differences := find_differences(name, answers[name], results):
                differing.append(name)
                print(f"DIFFERS {name}: {DIFFERENCES.get(name, 'not known')}")
                print(*(f"    {difference[:400]}" for difference in differences), sep="\n", flush=True)
    if arguments.record:
        kept = {name: answers[name] for name in topics if name in answers}
        ANSWERS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        return 0
    print(f"{len(chosen) - len(differing)} of {len(chosen)} topics are equal")
    surprising = [name for name in chosen if (name in differing) != (name in DIFFERENCES)]
    if surprising:
        print(f"next: change DIFFERENCES in {pathlib.Path(__file__).name} for: {', '.join(surprising)}")
    return int(bool(surprising))


if __name__ == "__main__":
    sys.exit(main())
