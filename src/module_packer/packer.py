"""Packs Ansible modules for remoor, and calls plugins of Ansible: lookups, filters and tests.

The program reads one request per line (JSON) from standard input, and writes one answer per line.
It ends at the end of the input, or after a minute without a request. Each request is handled in a
forked child with limits for time and memory. So a request leaves nothing behind in this process.
"""

import sys

# A file of the working directory must not replace a module of Python.
sys.path[:] = [path for path in sys.path if path not in ("", ".")]
import base64
import datetime
import importlib
import inspect
import io
import json
import os
import re
import resource
import select
import shutil
import signal
import tempfile
import traceback
import zipfile

IDLE_SECONDS = 60
REQUEST_SECONDS = int(os.environ.get("REMOOR_PACKER_SECONDS", "30"))
MEMORY_MAX = 2 << 30
PACKED_MAX = 8 << 20
LOOKUP_MAX = 1 << 20


class Refused(Exception):
    """A module that cannot run on a node. `kind` tells the caller which advice to give."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def hello():
    from ansible.release import __version__

    return {
        "core": __version__,
        "python": "%d.%d.%d" % sys.version_info[:3],
        "executable": sys.executable,
    }


def open_collections(bases):
    """Makes the collections beside the playbook known, in addition to the installed ones."""
    from ansible.plugins import loader

    dirs = [os.path.join(base, "collections") for base in bases]
    dirs = [path for path in dirs if os.path.isdir(path)]
    if hasattr(loader, "init_plugin_loader"):
        loader.init_plugin_loader(dirs)
        return loader
    from ansible import constants
    from ansible.utils.collection_loader import AnsibleCollectionConfig
    from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder

    # The releases before 2.15 set the collections up when they are imported.
    AnsibleCollectionConfig.collection_finder._remove()
    for name in [name for name in sys.modules if name.split(".")[0] == "ansible_collections"]:
        del sys.modules[name]
    paths = dirs + list(constants.COLLECTIONS_PATHS)
    _AnsibleCollectionFinder(paths, constants.COLLECTIONS_SCAN_SYS_PATH)._install()
    return loader


# Action plugins that only look for files on the controller before they run the module of the same
# name. `check_controller_options` refuses the options that name such files.
PREPARING_COLLECTIONS = ("kubernetes.core",)
PREPARING_ACTIONS = ("ansible.posix.patch", "amazon.aws.s3_object")


def has_action_plugin(loader, names, collections):
    for name in names:
        context = loader.action_loader.find_plugin_with_context(name, collection_list=collections)
        full = getattr(context, "resolved_fqcn", None) or ""
        only_prepares = full in PREPARING_ACTIONS or full.rpartition(".")[0] in PREPARING_COLLECTIONS
        if context.resolved and not only_prepares:
            return True
    return False


def find_module(loader, name, collections):
    from ansible.errors import AnsibleError

    try:
        context = loader.module_loader.find_plugin_with_context(name, "", collection_list=collections)
    except AnsibleError as error:
        # A redirect can name a collection that is not installed.
        raise Refused("not-found", first_line(error))
    if context.resolved:
        return context
    chain = [name] + list(context.redirect_list or [])
    last = chain[-1]
    if context.removal_version or context.removal_date:
        raise Refused("removed", "the module %s was removed from its collection" % last)
    parts = last.split(".")
    if len(parts) < 3:
        raise Refused("not-found", "no library, collection or ansible-core has the module")
    collection = ".".join(parts[:2])
    if collection in ("ansible.builtin", "ansible.legacy"):
        raise Refused("not-found", "no library and no installed ansible-core has the module %s" % last)
    try:
        importlib.import_module("ansible_collections." + collection)
    except ImportError:
        raise Refused("collection", collection)
    raise Refused("not-found", "the collection %s has no module %s" % (collection, ".".join(parts[2:])))


def add_directories(bases, kinds):
    """Lets each loader of `kinds` search its folder below each of `bases`."""
    for base in bases:
        for kind, folder in kinds:
            path = os.path.join(base, folder)
            if os.path.isdir(path):
                kind.add_directory(path)


def pack(request):
    bases = request["bases"]
    loader = open_collections(bases)
    kinds = (
        (loader.module_loader, "library"),
        (loader.module_utils_loader, "module_utils"),
        (loader.action_loader, "action_plugins"),
    )
    add_directories(bases, kinds)
    collections = request["collections"] or None
    if collections and not {"ansible.legacy", "ansible.builtin"} & set(collections):
        collections = collections + ["ansible.legacy"]
    name = request["name"]
    context = find_module(loader, name, collections)
    full = getattr(context, "resolved_fqcn", None) or context.plugin_resolved_name or name
    names = [name] + [other for other in list(context.redirect_list or []) + [full] if other != name]
    path = context.plugin_resolved_path
    if os.path.exists(os.path.splitext(path)[0] + ".ps1"):
        raise Refused("not-found", "the module of this name runs on Windows only")
    if has_action_plugin(loader, dict.fromkeys(names), collections):
        raise Refused("action", full)
    with open(path, "rb") as source:
        text = source.read()
    wrapper, style = wrap(full.rsplit(".", 1)[-1] if "." in full else full, path)
    profile = None
    if style == "non_native_want_json" and text.startswith(b"#!"):
        packed, fqn = pack_program(name, text)
    elif style != "new" or b"_ansiballz_main" not in wrapper:
        raise Refused("style", "it is no Python module that uses AnsibleModule (style `%s`)" % style)
    else:
        packed, fqn, names = repack(wrapper)
        if "ansible/module_utils/basic.py" not in names:
            # Such a module would ignore check mode.
            raise Refused("style", "it is no Python module that uses AnsibleModule")
        profile = re.search(rb"^\s*profile='([a-z0-9_]+)',$", wrapper, re.M)
    return {
        "name": full if full.count(".") >= 2 else "ansible.legacy." + full,
        "entry": fqn,
        "profile": profile.group(1).decode() if profile else "",
        "zip": base64.b64encode(packed).decode(),
        "internals": internals(),
        "facts": b"ansible_facts" in text,
        "min_python": ".".join(str(part) for part in minimum_python()),
        "core": hello()["core"],
        "origin": origin(path, full, request["root"]),
    }


def origin(path, full, root):
    """From where the module comes: its file, its collection and the version, and its options."""
    collection = ".".join(full.split(".")[:2]) if full.count(".") >= 2 else ""
    beside, inside, below = path.rpartition("/ansible_collections/")
    if collection in ("ansible.builtin", "ansible.legacy") or not inside:
        collection = ""
    version = ""
    if path.startswith(root.rstrip("/") + "/"):
        shown = os.path.relpath(path, root)
    elif collection:
        shown = "ansible_collections/" + below
    else:
        before, core, after = path.rpartition("/ansible/modules/")
        shown = "ansible/modules/" + after if core else os.path.basename(path)
    if collection:
        version = collection_version(os.path.join(beside, "ansible_collections", *collection.split(".")))
    return {"file": shown, "collection": collection, "collection_version": version, "options": options(path, collection)}


def collection_version(folder):
    import yaml

    for name, key in (("MANIFEST.json", "collection_info"), ("galaxy.yml", None)):
        try:
            with open(os.path.join(folder, name)) as source:
                info = yaml.safe_load(source)
            return str((info[key] if key else info)["version"])
        except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError):
            continue
    return ""


def options(path, collection):
    """The documented options with their aliases. A module without readable documentation has none."""
    try:
        from ansible.parsing.plugin_docs import read_docstring
        from ansible.plugins.loader import fragment_loader
        from ansible.utils.plugin_docs import add_fragments

        doc = read_docstring(path, verbose=False)["doc"]
        given = {"fragment_loader": fragment_loader, "is_module": True, "collection_name": collection or None}
        known = inspect.signature(add_fragments).parameters
        add_fragments(doc, path, **{key: value for key, value in given.items() if key in known})
        return {
            str(name): sorted(str(alias) for alias in (option or {}).get("aliases") or [])
            for name, option in doc["options"].items()
        }
    except Exception:
        return {}


def wrap(name, path):
    """The program that Ansible would send to the node for this module, and its style."""
    from ansible import constants
    from ansible.executor import module_common
    from ansible.parsing.dataloader import DataLoader
    from ansible.template import Templar

    # Ansible's cache of packed modules has the module's name as its key, and two roles may have
    # different modules of one name.
    scratch = tempfile.mkdtemp(prefix="pack-", dir=os.environ["REMOOR_PACKER_DIR"])
    try:
        constants.DEFAULT_LOCAL_TMP = scratch
        variables = {"ansible_python_interpreter": "/usr/bin/python3"}
        given = {
            "module_name": name,
            "module_path": path,
            "module_args": {},
            "templar": Templar(loader=DataLoader(), variables=variables),
            "task_vars": variables,
            "module_compression": "ZIP_STORED",
        }
        known = inspect.signature(module_common.modify_module).parameters
        made = module_common.modify_module(**{key: value for key, value in given.items() if key in known})
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if isinstance(made, tuple):
        return made[0], made[1]
    return made.b_module_data, made.module_style


def repack(wrapper):
    """The archive in the wrapper, written again without times, so that equal modules have equal bytes."""
    longest = max(re.findall(rb"[A-Za-z0-9+/]{200,}={0,2}", wrapper), key=len)
    entry = re.search(rb"(?:module_fqn=|mod_name=)['\"]([A-Za-z0-9_.]+)['\"]", wrapper)
    if entry is None:
        raise Refused("failed", "this ansible-core packs modules in a form that remoor does not know")
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(longest))) as old:
        files = {name: old.read(name) for name in old.namelist()}
    return write_archive(files), entry.group(1).decode(), set(files)


def write_archive(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as new:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o600 << 16
            new.writestr(info, files[name])
    if out.tell() > PACKED_MAX:
        raise Refused("failed", "the packed module is larger than %d MiB" % (PACKED_MAX >> 20))
    return out.getvalue()


# Starts a program that reads its arguments from a JSON file (style WANT_JSON). The archive of such a
# module has no module_utils of Ansible, only the place where the runner puts the arguments.
START_PROGRAM = """
import json
import os
import shutil
import subprocess
import sys
import tempfile

from ansible.module_utils import basic

args = json.loads(basic._ANSIBLE_ARGS)["ANSIBLE_MODULE_ARGS"]
if args.get("_ansible_check_mode") and b"_ansible_check_mode" not in PROGRAM:
    text = "remote module (%s) does not support check mode" % args.get("_ansible_module_name")
    print(json.dumps({"skipped": True, "msg": text}))
    sys.exit(0)
scratch = tempfile.mkdtemp(prefix=".remoor-", dir=args.get("_ansible_remote_tmp"))
try:
    for name, content in (("module", PROGRAM), ("args", json.dumps(args).encode())):
        with open(os.path.join(scratch, name), "wb") as out:
            out.write(content)
    line = PROGRAM.split(b"\\n", 1)[0][2:].decode().split(None, 1)
    done = subprocess.call(line + [os.path.join(scratch, "module"), os.path.join(scratch, "args")])
finally:
    shutil.rmtree(scratch, ignore_errors=True)
sys.exit(done)
"""


def pack_program(name, text):
    entry = "remoor_program_" + re.sub(r"\W", "_", name)
    source = "PROGRAM = %r\n%s" % (text, START_PROGRAM)
    empty = ["ansible/__init__.py", "ansible/module_utils/__init__.py"]
    files = dict.fromkeys(empty, b"")
    files["ansible/module_utils/basic.py"] = b"_ANSIBLE_ARGS = None\n"
    files[entry + ".py"] = source.encode()
    return write_archive(files), entry


def internals():
    from ansible.module_utils.common import parameters

    return sorted(parameters.PASS_VARS)


def minimum_python():
    from ansible.module_utils import basic

    least = getattr(basic, "_PY_MIN", None)
    least = least if isinstance(least, tuple) else getattr(basic, "_PY3_MIN", None)
    if isinstance(least, tuple) and least:
        return least[:2]
    # The releases before 2.17 keep only the result of the comparison. They support Python 3.5.
    return (3, 5)


def lookup(request):
    """The items that a lookup plugin finds. The arguments are data and never templates."""
    from ansible.parsing.dataloader import DataLoader
    from ansible.template import Templar

    dirs = request["dirs"]
    loader = open_collections(dirs)
    add_directories(dirs, ((loader.lookup_loader, "lookup_plugins"),))
    files = DataLoader()
    files.set_basedir(dirs[-1])
    variables = dict(request["variables"], ansible_search_path=dirs, playbook_dir=dirs[-1])
    name = request["name"]
    plugin = loader.lookup_loader.get(name, loader=files, templar=Templar(loader=files, variables=variables))
    if plugin is None:
        raise Refused("not-found", "no collection, directory or ansible-core has the lookup %s" % name)
    found = plugin.run(request["terms"], variables=variables, **request["options"])
    text = json.dumps({"items": list(found)}, default=str)
    if len(text) > LOOKUP_MAX:
        raise Refused("failed", "its result is larger than %d MiB" % (LOOKUP_MAX >> 20))
    return json.loads(text)


def parse_template(request):
    """Whether Jinja2 refuses the syntax of a template, with every extension that Ansible can enable."""
    import jinja2

    try:
        jinja2.Environment(extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"]).parse(request["text"])
    except jinja2.TemplateSyntaxError as error:
        raise Refused("syntax", first_line(error))
    return {"parsed": True}


def find_plugin(request):
    """Whether an installed collection has this filter or test. No file of the playbook is imported."""
    kind, name = request["kind"], request["name"]
    loader = open_collections([])
    try:
        found = (loader.filter_loader if kind == "filter" else loader.test_loader).get(name)
    except Exception:
        # A redirect can name a collection that is not installed.
        found = None
    if found is not None:
        return {"found": True}
    collection = ".".join(name.split(".")[:2])
    try:
        importlib.import_module("ansible_collections." + collection)
    except ImportError:
        raise Refused("collection", collection)
    raise Refused("not-found", "the collection %s has no %s %s" % (collection, kind, name))


def call_plugin(request):
    """The result of a filter or test. The first of the terms is its input. All are data."""
    from ansible.parsing.dataloader import DataLoader
    from ansible.template import Templar

    kind, name, dirs = request["op"], request["name"], request["dirs"]
    loader = open_collections(dirs)
    kinds = (
        (loader.filter_loader, "filter_plugins"),
        (loader.test_loader, "test_plugins"),
        (loader.module_utils_loader, "module_utils"),
    )
    add_directories(dirs, kinds)
    variables = dict(request["variables"], remoor_terms=request["terms"], remoor_options=request["options"])
    templar = Templar(loader=DataLoader(), variables=variables)
    if hasattr(templar, "evaluate_expression"):
        from ansible.template import trust_as_template

        sign = "|" if kind == "filter" else "is"
        text = "remoor_terms[0] %s %s(*remoor_terms[1:], **remoor_options)" % (sign, name)
        result = templar.evaluate_expression(trust_as_template(text))
    else:
        result = call_function(loader, templar, request)
    text = json.dumps({"items": [result]}, default=as_json)
    if len(text) > LOOKUP_MAX:
        raise Refused("failed", "its result is larger than %d MiB" % (LOOKUP_MAX >> 20))
    return json.loads(text)


def call_function(loader, templar, request):
    """Calls a filter or test of a release before 2.19, which has no function for expressions."""
    kind, name, terms = request["op"], request["name"], request["terms"]
    plugin = (loader.filter_loader if kind == "filter" else loader.test_loader).get(name)
    function = getattr(plugin, "j2_function", None)
    if function is None:
        raise Refused("not-found", "no directory, collection or ansible-core has the %s %s" % (kind, name))
    passed = str(getattr(function, "jinja_pass_arg", ""))
    if "environment" in passed:
        terms = [templar.environment] + terms
    elif passed:
        raise Refused("failed", "it needs ansible-core 2.19, because it reads the context of the template")
    return function(*terms, **request["options"])


def as_json(value):
    """What Ansible stores instead of values of Python that JSON does not have."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (tuple, set, frozenset)) or hasattr(value, "__next__"):
        return list(value)
    raise Refused("failed", "its result has the type %s, which JSON does not have" % type(value).__name__)


def first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:1000]


def answer(request):
    try:
        if request["op"] == "hello":
            return hello()
        if request["op"] == "pack":
            return pack(request)
        if request["op"] == "lookup":
            return lookup(request)
        if request["op"] == "plugin":
            return find_plugin(request)
        if request["op"] in ("filter", "test"):
            return call_plugin(request)
        if request["op"] == "template":
            return parse_template(request)
        return {"refused": "failed", "message": "unknown request"}
    except Refused as refused:
        return {"refused": refused.kind, "message": str(refused)}
    except ImportError as error:
        if (getattr(error, "name", None) or "").split(".")[0] == "ansible":
            return {"refused": "core", "message": first_line(error)}
        return {"refused": "failed", "message": first_line(error)}
    except MemoryError:
        return {"refused": "failed", "message": "it takes too much memory"}
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return {"refused": "failed", "message": first_line(error)}


def in_child(request):
    """Handles a request in a child, which the kernel ends after the time limit."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            # A command of a lookup must not read the requests, and ends with its group.
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
            resource.setrlimit(resource.RLIMIT_CPU, (REQUEST_SECONDS, REQUEST_SECONDS))
            signal.alarm(REQUEST_SECONDS)
            # What ansible-core or a collection prints must not mix with the answers.
            os.dup2(2, 1)
            with os.fdopen(writing, "wb") as out:
                out.write(json.dumps(answer(request)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        text = answers.read(2 * PACKED_MAX)
    try:
        os.killpg(child, signal.SIGKILL)
    except OSError:
        pass
    os.waitpid(child, 0)
    if not text:
        text = json.dumps({"refused": "failed", "message": "it took longer than %d s or was killed" % REQUEST_SECONDS}).encode()
    return text


def main():
    # A signal ends this process by an exception, so that the directory is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    scratch = tempfile.mkdtemp(prefix="remoor-packer-")
    try:
        os.environ["REMOOR_PACKER_DIR"] = os.environ["ANSIBLE_LOCAL_TEMP"] = scratch
        serve()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        # ansible-core would create the directory again when Python ends.
        os._exit(0)


def serve():
    try:
        # A child has what its parent has imported, so the imports are paid once.
        importlib.import_module("ansible.executor.module_common")
        importlib.import_module("ansible.plugins.loader")
        importlib.import_module("ansible.template")
    except Exception:
        # The answer to the first request tells the reason.
        pass
    requests = sys.stdin.buffer
    output = os.fdopen(os.dup(1), "wb")
    while select.select([requests], [], [], IDLE_SECONDS)[0]:
        line = requests.readline(1 << 20)
        if not line:
            break
        output.write(in_child(json.loads(line)) + b"\n")
        output.flush()


main()
