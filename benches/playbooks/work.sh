# The 20 tasks of benches/playbooks as one script. No tool can send less. $1 is the host's own
# directory.
set -e
own=$1
mkdir -p "$own/d1" "$own/d2" "$own/d3" "$own/d4" "$own/d5"
[ -e "$own/d1/copy" ] || echo "a copied line" >"$own/d1/copy"
for n in 2 3 4 5; do echo "a copied line" >"$own/d$n/copy"; done
for n in 1 2 3 4 5; do
    echo "port $n" >"$own/d$n/template"
    chmod 755 "$own/d$n"
    chmod 644 "$own/d$n/copy" "$own/d$n/template"
done
for n in 1 2 3; do grep -q "^k$n=" "$own/d1/copy" || echo "k$n=v$n" >>"$own/d1/copy"; done
true
true
