"""Runs one packed Ansible module on the node. Its arguments come as JSON on standard input."""
import sys

# A module of the working directory must not replace one of Python.
sys.path[:] = [path for path in sys.path if path not in ("", ".")]
import json
import os
import zipfile

packed, shared, entry, profile, oldest, core = sys.argv[1:7]


def unpack(shared):
    """Unpacks the archive, so that Python keeps what it has compiled for the next task of the run.

    The modules of a run share a directory, because most of their files are equal. A module with
    another file of the same name gets a directory of its own.
    """
    own = packed + ".d"
    done = os.path.join(shared, os.path.basename(packed) + ".done")
    if os.path.exists(done):
        return shared
    if os.path.exists(own):
        return own
    with zipfile.ZipFile(packed) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    if any(differs(os.path.join(shared, name), content) for name, content in files.items()):
        shared = done = own
    # A task may be killed here, so each file and the directory of a module get their names last.
    target = own + ".part" if shared == own else shared
    for name, content in files.items():
        path = os.path.join(target, name)
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            with open(path + ".part", "wb") as out:
                out.write(content)
            os.rename(path + ".part", path)
    if target == shared:
        open(done, "w").close()
    else:
        os.rename(target, own)
    return shared


def differs(path, content):
    if not os.path.exists(path):
        return False
    with open(path, "rb") as old:
        return old.read() != content


if sys.version_info[:2] < tuple(int(part) for part in oldest.split(".")):
    found = ".".join(str(part) for part in sys.version_info[:3])
    text = "%s is Python %s, but modules of ansible-core %s need at least Python %s" % (sys.executable, found, core, oldest)
    print(json.dumps({"failed": True, "msg": text}))
    sys.exit(1)
with open(0, "rb", closefd=False) as given:
    params = given.read()
# The module and its children must not read the rest of the executor's input.
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
sys.argv[1:] = []
if shared:
    packed = unpack(shared)
sys.path.insert(0, packed)
if profile:
    from ansible.module_utils._internal._ansiballz import _loader

    _loader.run_module(json_params=params, profile=profile, module_fqn=entry, modlib_path=packed, extensions={})
else:
    import runpy

    from ansible.module_utils import basic

    basic._ANSIBLE_ARGS = params
    known = {"_module_fqn": entry, "_modlib_path": packed}
    runpy.run_module(mod_name=entry, init_globals=known, run_name="__main__", alter_sys=True)
    print(json.dumps({"failed": True, "msg": "the module ended without a result"}))
    sys.exit(1)
