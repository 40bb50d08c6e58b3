#!/usr/bin/env python3
"""Evaluates each line of expressions.txt with Ansible's own templar, and prints the answers for answers.json:

    python3 -m venv V && V/bin/pip install ansible-core==2.19.14 passlib netaddr    (and a collection, see below)
    PYTHONHASHSEED=0 ANSIBLE_COLLECTIONS_PATH=DIR V/bin/python tests/ansible/record.py > tests/ansible/answers.json

DIR contains the collections ansible.utils and community.general below ansible_collections; the
package `ansible` contains them. The answers contain nothing about the machine or the time; expressions that would are not in the
table. `↵` in the table is a line end. `[file]` precedes the content of a template file, `[when]` a
condition.
"""

import json
import os
import sys

os.environ.update(ANSIBLE_DEPRECATION_WARNINGS="0", ANSIBLE_SYSTEM_WARNINGS="0", ANSIBLE_LOCALHOST_WARNING="0", TZ="UTC")

from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.release import __version__
from ansible.template import Templar, trust_as_template
from ansible.utils.collection_loader import AnsibleCollectionConfig
import yaml


def trusted(value):
    if isinstance(value, dict):
        return {key: trusted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [trusted(item) for item in value]
    return trust_as_template(value) if isinstance(value, str) and "{" in value else value


def plain(value):
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value
    if hasattr(value, "__iter__"):
        return [plain(item) for item in value]
    return {"python": type(value).__name__, "text": str(value)}


def answer(templar, text):
    try:
        if text.startswith("[file] "):
            text = trust_as_template(text.removeprefix("[file] "))
            # Like the action `template`; a value that is not a string is written as `str` writes
            # it.
            result = plain(templar.template(text, escape_backslashes=False))
            return {"is": "" if result is None else str(result)}
        if text.startswith("[when] "):
            return {"is": plain(templar.evaluate_conditional(trust_as_template(text.removeprefix("[when] "))))}
        return {"is": plain(templar.template(trust_as_template(text)))}
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return {"error": lines[0][:200]}


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    init_plugin_loader()
    with open(os.path.join(here, "vars.yml"), encoding="utf-8") as file:
        variables = trusted(yaml.safe_load(file))
    answers = {}
    with open(os.path.join(here, "expressions.txt"), encoding="utf-8") as file:
        for line in file:
            line = line.rstrip("\n")
            if not line or line.startswith(("#", " ")):
                continue
            text = line.replace("↵", "\n")
            answers[line] = answer(Templar(DataLoader(), variables=variables), text)
    told = [f"    {json.dumps(key, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}" for key, value in answers.items()]
    print("{")
    print(f'  "ansible-core": {json.dumps(__version__)},')
    print('  "command": "PYTHONHASHSEED=0 python tests/ansible/record.py",')
    print('  "answers": {')
    print(",\n".join(told))
    print("  }\n}")


if __name__ == "__main__":
    sys.exit(main())
