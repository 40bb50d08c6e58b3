#!/bin/bash
# Runs each playbook of this directory with real ansible-core, and writes the answers to
# recorded/*.json:
#   tests/playbooks/record.sh DIR [NAME..]
# DIR keeps the virtual environment. Without names, all playbooks are run. The script needs python3
# with venv, and network access for pip the first time. Everything runs as the calling user in a
# temporary directory. The answers contain nothing about the machine or the time. To use another
# ansible-playbook on PATH, run record.py directly.
set -euo pipefail
version=2.19.14
venv=${1:?usage: record.sh DIR [NAME..]}/ansible-$version
shift
if [ ! -x "$venv/bin/ansible-playbook" ]; then
    python3 -m venv "$venv"
    # The collections are those of one release. They contain modules such as ini_file.
    "$venv/bin/pip" install --quiet "ansible-core==$version" ansible==12.3.0 python-debian
fi
PATH="$venv/bin:$PATH" exec python3 "$(dirname "$0")/record.py" "$@"
