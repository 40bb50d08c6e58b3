"""The 20 tasks of benches/playbooks for pyinfra."""

from pyinfra import host
from pyinfra.operations import files, server

own = host.data.own

for n in range(1, 6):
    files.directory(name=f"directory {n}", path=f"{own}/d{n}", mode="755")
for n in range(1, 6):
    if n > 1:
        files.put(name=f"copy {n}", src="copy", dest=f"{own}/d{n}/copy", mode="644")
    else:
        # The task that adds lines comes later; this file must only exist.
        server.shell(name="copy 1", commands=[f"test -e {own}/d1/copy || echo 'a copied line' > {own}/d1/copy"])
for n in range(1, 6):
    files.template(name=f"template {n}", src="template.j2", dest=f"{own}/d{n}/template", mode="644", port=n)
for n in range(1, 4):
    files.line(name=f"line {n}", path=f"{own}/d1/copy", line=f"^k{n}=.*", replace=f"k{n}=v{n}")
for n in range(1, 3):
    server.shell(name=f"command {n}", commands=["true"])
