#!/usr/bin/env python3
"""Compares remoor with goss on check files of public repositories.

    tests/goss/corpus.py DIR ROOT GOSS REMOOR [NAME...]

DIR contains a checkout of each repository of repositories.txt as OWNER+NAME. ROOT is the directory
of a small Debian system, in which the checks run, because check files run programs. The checks
have no network, a read-only file system and no privileges except to read files. GOSS and REMOOR are
the two programs. NAME limits the run to repositories whose name contains it. The script needs root.

A file counts if goss answers it, with the variable files beside it or without. The script prints
each such file that remoor refuses, each assertion with another result, and the totals. It runs goss
twice, and does not compare an assertion whose result differs between the two runs.
"""
import json
import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TYPES = "addr command dns file gossfile group http interface kernel-param matching mount package port process service user"
GOSS_KEY = re.compile(r'^\s{0,2}"?(%s)"?:' % TYPES.replace(" ", "|"), re.M)
VARS = re.compile(r"var|value|\bparam", re.I)
PASSWORD = re.compile(r"(://[^:/@\s]*:)[^@\s]+@")
RESULTS = {0: "pass", 1: "fail", 2: "skip", 3: "unknown"}
SECONDS_MAX = 300

ENTER = """
set -e
root=$1
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
for dir in tmp run mnt; do mount -t tmpfs none "$root/$dir"; done
mkdir "$root/mnt/c" "$root/mnt/b"
touch "$root/mnt/b/goss" "$root/mnt/b/remoor"
mount --bind "$2" "$root/mnt/c"
mount -o remount,bind,ro "$root/mnt/c"
mount --bind "$3" "$root/mnt/b/goss"
mount --bind "$4" "$root/mnt/b/remoor"
mount -t proc -o ro proc "$root/proc"
ip link set lo up 2>/dev/null || true
shift 4
exec chroot "$root" setpriv --bounding-set=-all,+dac_read_search --inh-caps=-all \\
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"
"""


class Runner:
    def __init__(self, corpus, root, goss, remoor):
        self.corpus, self.places = corpus, [str(root), str(corpus), str(goss), str(remoor)]

    def run(self, program, file, arguments):
        """Exit code, standard output and standard error of a program in the small system."""
        inside = ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", "/mnt/c/%s" % file.parent, "/mnt/b/" + program]
        command = ["unshare", "--mount", "--net", "--pid", "--ipc", "--fork", "sh", "-c", ENTER, "sh"]
        command += self.places + ["timeout", "-k1", str(SECONDS_MAX)] + inside + arguments
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")

    def answers(self, program, file, options):
        if program == "goss":
            arguments = ["-g", file.name] + options + ["validate", "-f", "json", "--no-color"]
        else:
            arguments = ["check", "--file", file.name, "-o", "json"] + options
        code, out, err = self.run(program, file, arguments)
        try:
            results = json.loads(out[out.index("{"):])["results"]
        except (ValueError, KeyError):
            return None, "exit code %d: %s" % (code, (err or out).strip())
        keys = Counter()
        answers = {}
        for one in results or []:
            # remoor hides the passwords of URLs.
            key = (one["resource-type"], PASSWORD.sub(r"\1***@", one["resource-id"]), one["property"])
            keys[key] += 1
            answers[key + (keys[key],)] = RESULTS.get(one["result"])
        return answers, err


def extract_examples(repository):
    """Writes each YAML example of the documentation of goss to a file of its own."""
    for page in sorted(repository.glob("docs/**/*.md")):
        text = "\n".join(line.removeprefix("    ") for line in page.read_text().split("\n"))
        for number, example in enumerate(re.findall(r"```ya?ml[^\n]*\n(.*?)```", text, re.S)):
            target = repository / "examples-of-docs" / ("%s-%d.yaml" % (page.stem, number))
            target.parent.mkdir(exist_ok=True)
            target.write_text(example)


def check_files(repository):
    """Files that look like check files, and the files of variables of the repository."""
    files, variables = [], []
    if repository.name == "goss-org+goss":
        extract_examples(repository)
    for path in sorted(p for p in repository.rglob("*") if p.suffix in (".yml", ".yaml", ".json") and p.is_file()):
        text = path.read_text(errors="replace")
        if GOSS_KEY.search(text) and not VARS.search(path.name):
            files.append(path)
        if VARS.search(str(path.relative_to(repository))) and len(text) < 1 << 20:
            variables.append(path)
    return files, variables


def options(repository, file, variables):
    """Options for variables, in the order in which to try them: the closest files first."""
    inline = []
    # Whole audits have a script that passes facts of the machine to goss.
    script = repository / "run_audit.sh"
    if script.is_file():
        lines = [line for line in script.read_text().split("\n") if "json_vars=" in line]
        names = re.findall(r'"(\w+)":', " ".join(lines))
        inline = ["--vars-inline=" + json.dumps({name: "12" for name in names})]
    distance = lambda v: len(Path(os.path.relpath(v, file.parent)).parts)
    nearest = sorted((v for v in variables if v != file), key=distance)[:6]
    return [inline] + [["--vars=" + os.path.relpath(v, file.parent)] + inline for v in nearest]


def compare(runner, repository, file, variables):
    relative = file.relative_to(runner.corpus)
    for chosen in options(runner.corpus / repository.replace("/", "+"), file, variables):
        theirs, why = runner.answers("goss", relative, chosen)
        if theirs is not None or "map has no entry" not in why and "nil" not in why:
            break
    if theirs is None:
        return "goss refuses", str(relative), why.splitlines()[-1:] or [""], 0
    ours, why = runner.answers("remoor", relative, chosen)
    if ours is None:
        return "refused", str(relative), why.splitlines()[:3], len(theirs)
    again = runner.answers("goss", relative, chosen)[0] or {}
    stable = {key for key in theirs if again.get(key) == theirs[key]}
    lines = []
    for key in sorted(set(theirs) | set(ours)):
        if key in stable or key not in theirs:
            if ours.get(key) != theirs.get(key):
                lines.append("%s: goss %s, remoor %s" % (" ".join(key[:3])[:120].replace("\n", "\\n"), theirs.get(key), ours.get(key)))
    return "differs" if lines else "equal", str(relative), lines, len(theirs)


def main():
    corpus, root, goss, remoor = (Path(a).resolve() for a in sys.argv[1:5])
    names = sys.argv[5:]
    runner = Runner(corpus, root, goss, remoor)
    work = []
    for line in (Path(__file__).parent / "repositories.txt").read_text().split("\n"):
        name = line.split("#")[0].strip()
        repository = corpus / name.replace("/", "+")
        if name and repository.is_dir() and (not names or any(n in name for n in names)):
            files, variables = check_files(repository)
            work += [(name, file, variables) for file in files]
    files, repositories, assertions, different = Counter(), {}, 0, 0
    with ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        jobs = [(name, pool.submit(compare, runner, name, file, variables)) for name, file, variables in work]
        for name, job in jobs:
            state, file, lines, count = job.result()
            files[state] += 1
            if state == "goss refuses":
                if os.environ.get("ALL"):
                    print("%s: %s: %s" % (state, file, lines[0][:200]))
                continue
            repositories.setdefault(name, Counter())[state] += 1
            if state != "refused":
                assertions += count
                different += len(lines)
            if state != "equal":
                print("%s: %s" % (state, file))
                for line in lines[:20]:
                    print("    " + line[:220])
                sys.stdout.flush()
    loaded = sum(n for state, n in files.items() if state != "goss refuses")
    print("repositories with a file that goss loads: %d; with a refused file: %d; with a difference: %d" % (
        len(repositories), sum(1 for c in repositories.values() if c["refused"]),
        sum(1 for c in repositories.values() if c["differs"])))
    print("files that goss loads: %d; refused: %d; with a difference: %d" % (loaded, files["refused"], files["differs"]))
    print("assertions compared: %d; different: %d" % (assertions, different))
    print("files that goss refuses too, or that are no check files: %d" % files["goss refuses"])
    return 1 if files["refused"] or files["differs"] else 0


if __name__ == "__main__":
    sys.exit(main())
