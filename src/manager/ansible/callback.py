# Reports a run of Ansible to remoor: one JSON object a line, after an id that the run chose, so that
# no other line of standard output is taken for one. Also puts REMOOR_ATTEMPT into the environment of
# everything that a play starts on a node. The manager reads the lines in callback_events.rs.
# Never sent: complete results, diffs, anything of a task with `no_log`.
import json
import os
import time

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: remoor_lines
type: stdout
short_description: JSON lines for remoor
description: [JSON lines for remoor]
"""

HIDDEN = "hidden by no_log"
# Less than the 16 KiB that remoor reads as one line, in bytes of UTF-8.
LINE_MAX = 12 << 10


def tail(text, lines, width):
    return "\n".join(line[:width] for line in text.splitlines()[-lines:])


def words(value, width):
    if value is None:
        return ""
    if not isinstance(value, str):
        value = json.dumps(value, default=str, ensure_ascii=False)
    return value[:width]


# The attribute names of ansible-core since 2.19, and those from before.
def part(result, name):
    found = getattr(result, name, None)
    return getattr(result, "_" + name) if found is None else found


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "remoor_lines"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.word = os.environ.get("REMOOR_LINES", "remoor")
        self.root = os.getcwd()
        self.numbers = {}
        self.handlers = set()
        self.since = time.monotonic()

    def tell(self, said):
        line = json.dumps(said, default=str, ensure_ascii=False)
        # If the line is too long, shorten the long fields; of the output keep the end.
        for width in (2000, 200, 20):
            if len(line.encode("utf-8", "replace")) <= LINE_MAX:
                break
            for key in ("stdout_tail", "msg", "name", "item", "file"):
                if isinstance(said.get(key), str):
                    said[key] = said[key][-width:] if key == "stdout_tail" else said[key][:width]
            line = json.dumps(said, default=str, ensure_ascii=False)
        self._display.display(self.word + " " + line)

    def number(self, task):
        return self.numbers.setdefault(task._uuid, len(self.numbers) + 1)

    # The name as written may be shown; a rendered name may contain what `no_log` hides.
    def name(self, task, hidden, rendered=None):
        written = getattr(task, "_ds", None)
        if hidden:
            name = (written or {}).get("name") if isinstance(written, dict) else None
            return words(name or task.action, 500)
        return words(rendered or task.get_name(), 500)

    def place(self, task):
        try:
            file, _, line = (task.get_path() or "").rpartition(":")
            inside = os.path.relpath(file, self.root) if file else ""
            return (file if inside.startswith("..") else inside), int(line)
        except (AttributeError, TypeError, ValueError):
            return "", 0

    def begins(self, task):
        self.since = time.monotonic()
        name = self.name(task, task.no_log not in (None, False))
        self.tell({"event": "task-start", "i": self.number(task), "name": name, "item": None})

    def ended(self, result, status, item=False):
        task, fields, got = part(result, "task"), part(result, "task_fields") or {}, part(result, "result") or {}
        hidden = fields.get("no_log") or got.get("_ansible_no_log") or "censored" in got or task.no_log is True
        now = time.monotonic()
        took, self.since = int((now - self.since) * 1000), now
        said = {
            "event": "handler" if task._uuid in self.handlers else "task",
            "i": self.number(task),
            "name": self.name(task, hidden, fields.get("name")),
            "module": words(task.action, 100),
            "item": None,
            "status": status,
            "whole": not item,
            "msg": "",
            "rc": got.get("rc") if isinstance(got.get("rc"), int) else None,
            "stdout_tail": "",
            "took_ms": took,
            "host": words(part(result, "host").get_name(), 300),
        }
        said["file"], said["line"] = self.place(task)
        if item:
            label = got.get("_ansible_item_label", got.get(got.get("ansible_loop_var", "item")))
            said["item"] = HIDDEN if hidden else words(label, 300)
        if hidden:
            said["msg"] = HIDDEN if got.get("msg") or got.get("censored") else ""
        else:
            said["msg"] = words(got.get("msg"), 3000)
            if status in ("failed", "ignored"):
                streams = [got.get(key) for key in ("module_stdout", "module_stderr", "stdout", "stderr")]
                said["stdout_tail"] = tail("\n".join(s for s in streams if isinstance(s, str) and s.strip()), 20, 300)
            elif isinstance(got.get("stdout"), str):
                said["stdout_tail"] = tail(got["stdout"], 20, 300)
        self.tell(said)

    def failed(self, result, ignored, item=False):
        self.ended(result, "ignored" if ignored else "failed", item)

    def v2_playbook_on_start(self, playbook):
        mark = os.environ.get("REMOOR_MARK")
        for play in playbook.get_plays() if mark else []:
            given = play.environment or []
            given = given if isinstance(given, list) else [given]
            play.environment = given + [{"REMOOR_ATTEMPT": mark}]

    def v2_playbook_on_no_hosts_matched(self):
        self.tell({"event": "no-hosts"})

    def v2_playbook_on_task_start(self, task, is_conditional):
        self.begins(task)

    def v2_playbook_on_handler_task_start(self, task):
        self.handlers.add(task._uuid)
        self.begins(task)

    def v2_runner_on_ok(self, result):
        changed = (part(result, "result") or {}).get("changed")
        self.ended(result, "changed" if changed else "ok")

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self.failed(result, ignore_errors)

    def v2_runner_on_skipped(self, result):
        self.ended(result, "skipped")

    def v2_runner_on_unreachable(self, result):
        ignored = (part(result, "task_fields") or {}).get("ignore_unreachable")
        self.ended(result, "ignored" if ignored else "unreachable")

    def v2_runner_item_on_ok(self, result):
        changed = (part(result, "result") or {}).get("changed")
        self.ended(result, "changed" if changed else "ok", True)

    def v2_runner_item_on_failed(self, result):
        self.failed(result, (part(result, "task_fields") or {}).get("ignore_errors"), True)

    def v2_runner_item_on_skipped(self, result):
        self.ended(result, "skipped", True)

    def v2_playbook_on_stats(self, stats):
        for host in sorted(stats.processed):
            counts = stats.summarize(host)
            self.tell({"event": "stats", "host": host, "rescued": int(counts.get("rescued", 0))})
