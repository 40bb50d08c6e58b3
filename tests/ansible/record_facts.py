#!/usr/bin/env python3
"""Copies the files with facts to tests/ansible/node, and the output of Ansible's setup for the same machine:

    V/bin/python tests/ansible/record_facts.py V/bin/ansible

What would tell of one machine or moment only (names, serial numbers, the kernel's command line, loads, times) is left out.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

FILES = """etc/os-release etc/debian_version etc/lsb-release etc/resolv.conf proc/cpuinfo proc/meminfo proc/1/comm proc/1/cgroup
proc/modules proc/net/route proc/net/ipv6_route proc/sys/crypto/fips_enabled""".split()
OF_INTERFACES = "address mtu operstate type flags ifindex speed".split()
# Only their existence matters.
MARKS = "usr/bin/apt-get usr/bin/lsb_release usr/bin/dnf .dockerenv dev/kvm run/systemd/system sys/kernel/security/apparmor".split()
FACTS = """all_ipv4_addresses all_ipv6_addresses apparmor default_ipv4 default_ipv6 distribution distribution_file_parsed
distribution_file_path distribution_file_variety distribution_major_version distribution_minor_version distribution_release
distribution_version dns fips flags lsb memtotal_mb os_family pkg_mgr processor processor_cores processor_count
processor_threads_per_core processor_vcpus selinux service_mgr swaptotal_mb virtualization_role virtualization_tech_guest
virtualization_tech_host virtualization_type interfaces""".split()


def main():
    node = pathlib.Path(__file__).parent / "node"
    shutil.rmtree(node, ignore_errors=True)
    interfaces = sorted(os.listdir("/sys/class/net"))
    for name in FILES + [f"sys/class/net/{i}/{file}" for i in interfaces for file in OF_INTERFACES] + MARKS:
        source = pathlib.Path("/") / name
        if not source.exists():
            continue
        target = node / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            target.write_bytes(b"" if name in MARKS else source.read_bytes())
        except OSError:
            target.unlink(missing_ok=True)
    ip = subprocess.run(["ip", "-j", "addr"], capture_output=True, check=True).stdout
    keep = "family local prefixlen scope broadcast secondary".split()
    addresses = {
        link["ifindex"]: [{k: a[k] for k in keep if k in a} for a in link["addr_info"]] for link in json.loads(ip)
    }
    told = subprocess.run([sys.argv[1], "localhost", "-c", "local", "-m", "setup"], capture_output=True, check=True).stdout
    told = json.loads(told[told.index(b"{") :])["ansible_facts"]
    facts = {name: told[f"ansible_{name}"] for name in FACTS if f"ansible_{name}" in told}
    facts.update({i: told[f"ansible_{i}"] for i in interfaces if f"ansible_{i}" in told})
    for i in interfaces:
        facts[i].pop("pciid", None)
    version = subprocess.run([sys.argv[1], "--version"], capture_output=True, check=True, text=True).stdout.splitlines()[0]
    out = {"version": version, "command": "ansible localhost -c local -m setup", "addresses": addresses, "facts": facts}
    (node.parent / "setup.json").write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
