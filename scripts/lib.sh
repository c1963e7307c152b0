# shellcheck shell=bash

# Functions that the other scripts source: messages, and the installation of dependencies.

package=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." >/dev/null && pwd)

# Prints to standard error: standard output is for the program that a script runs.
say() { printf '%s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

# Requires the Swift version in the package's manifest.
need_swift() {
    local wanted found install=https://www.swift.org/install/linux/
    wanted=$(sed -n 's|^// swift-tools-version: *||p' "$package/Package.swift")
    found=$(swift --version 2>/dev/null | sed -nE 's/.*Swift version ([0-9.]+).*/\1/p') || true
    [[ $found ]] || fail "No working \`swift\` in PATH. Install Swift $wanted or newer: $install"
    printf '%s\n' "$wanted" "$found" | sort -VC ||
        fail "Swift $found is too old. Install Swift $wanted or newer: $install"
}

# The modules of the package's products.
# shellcheck disable=SC2034 # the scripts that source this use it
modules=(Reactor ReactorFoundation ReactorTLS ReactorHTTP ReactorHTTPFoundation ReactorGLib ReactorTesting)

# Sets `module_options`: where tools that do not read the package find the built modules and what those import.
find_modules() {
    local built map flag
    built=$(swift build --package-path "$package" --show-bin-path)
    module_options=(
        -target "$(swift -print-target-info | sed -n 's/.*"unversionedTriple": "\(.*\)".*/\1/p')" -I "$built/Modules"
    )
    for map in "$package"/Sources/CReactor{Libevent,Libcurl,GLib,OpenSSL} "$built"/CReactorLinux.build \
        "$package"/.build/checkouts/swift-system/Sources/CSystem/include; do
        module_options+=(-Xcc "-fmodule-map-file=$map/module.modulemap")
    done
    for flag in $(pkg-config --cflags glib-2.0); do module_options+=(-Xcc "$flag"); done
}

# Installs libevent, libcurl, OpenSSL and GLib with apt unless pkg-config finds them.
need_libraries() {
    pkg-config --exists libevent_core libcurl openssl glib-2.0 2>/dev/null ||
        need_packages libevent-dev libcurl4-openssl-dev libssl-dev libglib2.0-dev pkg-config
}

# Installs SQLite, which the example `importer` uses, unless pkg-config finds it.
need_example_libraries() {
    pkg-config --exists sqlite3 2>/dev/null || need_packages libsqlite3-dev pkg-config
}

# Installs the missing ones of the given Debian packages. Asks only for sudo's password, and only on a terminal.
need_packages() {
    type -P apt-get dpkg-query >/dev/null ||
        fail "Missing packages (Debian's names): $*. There is no apt; install them with this system's package manager."

    local name missing=()
    for name; do
        dpkg-query --show --showformat='${db:Status-Status}\n' "$name" 2>/dev/null | grep -qx installed ||
            missing+=("$name")
    done
    ((${#missing[@]})) || return 0

    local by_hand="apt-get update && apt-get install ${missing[*]}" as_root=()
    if ((EUID != 0)); then
        type -P sudo >/dev/null ||
            fail "Missing packages: ${missing[*]}. Neither root nor sudo is available; run as root: $by_hand"
        by_hand=${by_hand//apt-get/sudo apt-get}
        as_root=(sudo)
        [[ -t 0 ]] || as_root+=(-n) # without a terminal, fail instead of waiting for a password
    fi

    say "Missing packages: ${missing[*]}. Running: $by_hand"
    as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=60)
    {
        # A broken third-party source makes the update fail, but Debian's packages may still be available.
        "${as_root[@]}" update || say "apt-get update failed; continuing with the existing package lists."
        "${as_root[@]}" install --yes --no-install-recommends "${missing[@]}"
    } </dev/null >&2 || fail "apt-get failed. Run it by hand: $by_hand"
}

# Downloads Debian packages and their missing dependencies, and unpacks them in the folder $1. Installs nothing, starts
# no service and does not need root. Returns 1 if that fails.
unpack_packages() {
    local folder=$1 archive
    shift
    type -P apt-get dpkg-deb >/dev/null || {
        say "There is no apt."
        return 1
    }
    mkdir -p "$folder/archives/partial"
    # Downloads as root: apt warns if its own user cannot write to the folder.
    apt-get -qq --yes --no-install-recommends --download-only -o Debug::NoLocking=1 -o APT::Sandbox::User=root \
        -o Dir::Cache::archives="$folder/archives" install "$@" </dev/null >&2 || return 1
    for archive in "$folder"/archives/*.deb; do
        dpkg-deb --extract "$archive" "$folder" || return 1
    done
    rm -r "$folder/archives"
}

# Provides the servers that some tests need; those tests are skipped without them. A server that is not installed is
# unpacked in .build/servers, where the tests look for it too.
want_servers() {
    local folder=$package/.build/servers name missing=()
    for name in redis-server nginx microsocks tinyproxy danted; do
        PATH=$PATH:/usr/sbin:/usr/local/sbin:$folder/bin type -P "$name" >/dev/null || missing+=("$name")
    done
    ((${#missing[@]})) || return 0

    say "Downloading servers for the tests to $folder: ${missing[*]}"
    rm -rf "$folder/archives"
    if ! unpack_packages "$folder" "${missing[@]/#danted/dante-server}"; then
        say "The download failed. The tests that need these servers are skipped: ${missing[*]}"
        return 0
    fi
    mkdir -p "$folder/bin"
    for name in "${missing[@]}"; do wrap_program "$folder" "$name"; done
}

# Creates $1/bin/$2, which runs the program $2 unpacked in $1 with the libraries unpacked there.
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
