"""Callback of ansible-playbook: writes the task results of each host in order, and the recap, to the file REMOOR_TOLD."""

import json
import os

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: told
type: stdout
short_description: results of tasks for tests
description: results of tasks for tests
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "told"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.hosts = {}

    def note(self, result, status):
        task = result._task
        # A task that ansible adds itself.
        if task.action in ("gather_facts", "ansible.builtin.gather_facts") and result.task_name == "Gathering Facts":
            return
        if task.action in ("meta", "ansible.builtin.meta"):
            return
        kind = "handler " if type(task).__name__ == "Handler" else ""
        name = result.task_name
        self.host(result._host.get_name())["tasks"].append(f"{kind}{name}: {status}")

    def host(self, name):
        return self.hosts.setdefault(name, {"tasks": [], "recap": {}})

    def v2_runner_on_ok(self, result):
        self.note(result, "changed" if result._result.get("changed") else "ok")

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self.note(result, "ignored" if ignore_errors else "failed")

    def v2_runner_on_skipped(self, result):
        self.note(result, "skipped")

    def v2_runner_on_unreachable(self, result):
        self.note(result, "unreachable")

    def v2_playbook_on_stats(self, stats):
        for name in stats.processed:
            summary = stats.summarize(name)
            summary["failed"] = summary.pop("failures")
            self.host(name)["recap"] = dict(sorted(summary.items()))
        with open(os.environ["REMOOR_TOLD"], "w", encoding="utf-8") as file:
            json.dump(dict(sorted(self.hosts.items())), file)
