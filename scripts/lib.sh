# shellcheck shell=bash

# Sourced by the scripts beside it: words for the user, and what the package needs of the machine.

package=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." >/dev/null && pwd)

# To stderr: stdout belongs to the program that a script runs.
say() { printf '%s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

# Swift, as new as the manifest asks.
need_swift() {
    local wanted found install=https://www.swift.org/install/linux/
    wanted=$(sed -n 's|^// swift-tools-version: *||p' "$package/Package.swift")
    found=$(swift --version 2>/dev/null | sed -nE 's/.*Swift version ([0-9.]+).*/\1/p') || true
    [[ $found ]] || fail "There is no working \`swift\` on the PATH. Swift $wanted or newer comes from $install"
    printf '%s\n' "$wanted" "$found" | sort -VC ||
        fail "Swift $found is too old. Swift $wanted or newer comes from $install"
}

# A machine that has libevent, however it came by it, needs nothing from apt.
need_libevent() {
    pkg-config --exists libevent_core 2>/dev/null || need_packages libevent-dev pkg-config
}

# Installs those of the named Debian packages that are missing; asks nothing but, on a terminal, sudo's password.
need_packages() {
    type -P apt-get dpkg-query >/dev/null ||
        fail "Needed: $* (Debian's names). There is no apt here: please install them in this system's way."

    local name missing=()
    for name; do
        dpkg-query --show --showformat='${db:Status-Status}\n' "$name" 2>/dev/null | grep -qx installed ||
            missing+=("$name")
    done
    ((${#missing[@]})) || return 0

    local by_hand="apt-get update && apt-get install ${missing[*]}" as_root=()
    if ((EUID != 0)); then
        type -P sudo >/dev/null ||
            fail "Missing: ${missing[*]}. Without root or sudo, please have root run: $by_hand"
        by_hand=${by_hand//apt-get/sudo apt-get}
        as_root=(sudo)
        [[ -t 0 ]] || as_root+=(-n) # nobody is there to type a password: fail, do not wait
    fi

    say "Missing: ${missing[*]}. Running: $by_hand"
    as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=60)
    {
        # A foreign source out of order fails the update, yet need not keep us from Debian's packages.
        "${as_root[@]}" update || say "apt-get update failed; going on with the package lists at hand."
        "${as_root[@]}" install --yes --no-install-recommends "${missing[@]}"
    } </dev/null >&2 || fail "apt-get failed. Please run by hand: $by_hand"
}

# Fetches Debian packages, with what they need and this system lacks, and unpacks them in the folder $1: nothing is
# installed, no service starts, root is not needed. Fails, with a word of why, where that cannot be.
unpack_packages() {
    local folder=$1 archive
    shift
    type -P apt-get dpkg-deb >/dev/null || {
        say "There is no apt here."
        return 1
    }
    mkdir -p "$folder/archives/partial"
    # Not a warning worth seeing: the user that apt fetches as may be kept out of this folder.
    apt-get -qq --yes --no-install-recommends --download-only -o Debug::NoLocking=1 -o APT::Sandbox::User=root \
        -o Dir::Cache::archives="$folder/archives" install "$@" </dev/null >&2 || return 1
    for archive in "$folder"/archives/*.deb; do
        dpkg-deb --extract "$archive" "$folder" || return 1
    done
    rm -r "$folder/archives"
}

# The servers that some tests talk to, which are skipped without them. What is not installed is unpacked in
# .build/servers, where the tests look too.
want_servers() {
    local folder=$package/.build/servers name missing=()
    for name in redis-server mosquitto; do
        PATH=$PATH:/usr/sbin:/usr/local/sbin:$folder/bin type -P "$name" >/dev/null || missing+=("$name")
    done
    ((${#missing[@]})) || return 0

    say "Fetching for the tests, into $folder: ${missing[*]}"
    rm -rf "$folder"
    if ! unpack_packages "$folder" "${missing[@]}"; then
        say "That failed. The tests that need them are skipped; they run where these are installed: ${missing[*]}"
        return 0
    fi
    mkdir -p "$folder/bin"
    for name in "${missing[@]}"; do wrap_program "$folder" "$name"; done
}

# Has $1/bin/$2 run the program $2 that was unpacked in $1, with the libraries that came along.
wrap_program() {
    local folder=$1 libraries='' path
    for path in "$folder"/{usr/,}lib/*-linux-gnu*; do
        [[ ! -d $path ]] || libraries+=${libraries:+:}\$folder/${path#"$folder/"}
    done
    for path in "$folder"/usr/{bin,sbin}/"$2"; do
        [[ -x $path ]] || continue
        cat >"$folder/bin/$2" <<END
#!/bin/sh
folder=\$(dirname "\$0")/..
LD_LIBRARY_PATH=$libraries exec "\$folder/${path#"$folder/"}" "\$@"
END
        chmod +x "$folder/bin/$2"
    done
}
