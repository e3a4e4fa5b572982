#!/usr/bin/env bash
# Try Caraway on a machine that has Python and git alone: no Java, no compiler, an empty home (`just bare-machine`).
#
# The machine is a tree of Debian packages that is made once and entered by chroot, as a plain user. Packages come from
# where this machine gets its own: apt's sources, pip's configuration, certificates and variables are copied at run time.
# Two ways are tried, each from nothing and then once more: a clone with `./run demo`, and the wheel by pip.
# `machine.sh --quick` lets the first runs be short as well.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
REPOSITORY=$PWD
TREE=${CARAWAY_BARE_TREE:-${TMPDIR:-/tmp}/caraway-bare-machine}
SUITE=bookworm
PACKAGES=python3,python3-venv,python3-pip,git,ca-certificates
HOME_FOLDER=/home/newcomer
USER_ID=1000

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

[ "$(id -u)" = 0 ] || fail "The bare machine is entered by chroot, which root alone may do. Nothing was tried."
command -v debootstrap >/dev/null ||
    fail "The bare machine is made by debootstrap, which isn't here: sudo apt-get install debootstrap. Nothing was tried."

# The whole of it runs in namespaces of its own, so that neither mounts nor processes are left.
if [ "${1:-}" != --inside ]; then
    exec unshare --mount --pid --fork --kill-child -- bash "${BASH_SOURCE[0]}" --inside "$@"
fi
shift

mirror() { # the first source of this machine's apt
    { sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/*.sources
        sed -n 's/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*\) .*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/*.list
    } 2>/dev/null | head -1
}

if [ ! -x "$TREE/usr/bin/git" ]; then
    echo "Making the machine in $TREE"
    rm -rf "$TREE"
    debootstrap --variant=minbase --include="$PACKAGES" "$SUITE" "$TREE" "$(mirror)" >"$TREE.log" 2>&1 ||
        fail "debootstrap failed; see $TREE.log"
fi

# Postgres looks its user up.
grep -q '^newcomer:' "$TREE/etc/passwd" ||
    chroot "$TREE" useradd --uid "$USER_ID" --user-group --no-create-home --home-dir "$HOME_FOLDER" --shell /bin/bash newcomer

# What this machine knows of its network, and nothing else of it.
for path in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs /usr/local/share/ca-certificates; do
    [ ! -e "$path" ] || { mkdir -p "$TREE$(dirname "$path")" && cp -rLT "$path" "$TREE$path" 2>/dev/null || true; }
done
rm -rf "${TREE:?}$HOME_FOLDER" "$TREE/tmp" "$TREE/source"
mkdir -p "$TREE$HOME_FOLDER/.config" "$TREE/tmp" "$TREE/source" "$TREE/wheel" "$TREE/dev/shm"
chmod 1777 "$TREE/tmp"
[ ! -d "$HOME/.config/pip" ] || cp -r "$HOME/.config/pip" "$TREE$HOME_FOLDER/.config/"
[ ! -d "$HOME/.config/uv" ] || cp -r "$HOME/.config/uv" "$TREE$HOME_FOLDER/.config/"
rm -f "$TREE"/wheel/*
.venv/bin/just dist "$TREE/wheel" >/dev/null
chown -R "$USER_ID" "$TREE$HOME_FOLDER"

mount -t proc proc "$TREE/proc"
mount --rbind /dev "$TREE/dev"
mount --bind "$(git rev-parse --path-format=absolute --git-common-dir)" "$TREE/source"

variables=(HOME="$HOME_FOLDER" USER=newcomer PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 TERM=dumb)
while IFS= read -r variable; do
    variables+=("$variable")
done < <(env | grep -E '^(PIP_|UV_|SSL_|https?_proxy|no_proxy|HTTPS?_PROXY|NO_PROXY|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|GIT_SSL_)')

there() { # there <command>: in the machine, as a plain user with nothing but what a login has
    chroot --userspec="$USER_ID:$USER_ID" "$TREE" env -i "${variables[@]}" bash -c "cd && $1"
}

measured() { # measured <what> <command>
    local begin=$SECONDS
    echo "--- $1: $2"
    there "$2" || fail "On the bare machine this failed: $2"
    figures+=("$1: $((SECONDS - begin)) s")
}

figures=()
for program in java javac gcc cc make; do
    ! there "command -v $program" >/dev/null || fail "The bare machine has $program: remove $TREE and try again."
done
there "git config --global --add safe.directory '*' && git clone --quiet --branch $(git rev-parse --abbrev-ref HEAD) /source caraway"
measured "clone, first start" "caraway/run demo ${1:-}"
measured "clone, second start" "caraway/run demo --quick"
measured "wheel, installed" "python3 -m venv env && env/bin/pip install --quiet \"\$(ls /wheel/*.whl)[server,demo]\""
# The clone has filled the cache of the Java libraries.
there "rm -rf .cache/caraway"
measured "wheel, first start" "env/bin/caraway demo --quick"
measured "wheel, second start" "env/bin/caraway demo --quick"
printf '%s\n' "" "On Python alone (from $REPOSITORY):" "${figures[@]}"
