# What a play starts on a node says whose it is. See src/manager/ansible.rs.
import os

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "remoor_mark"

    def v2_playbook_on_start(self, playbook):
        mark = os.environ.get("REMOOR_MARK")
        for play in playbook.get_plays() if mark else []:
            given = play.environment or []
            given = given if isinstance(given, list) else [given]
            play.environment = given + [{"REMOOR_ATTEMPT": mark}]
