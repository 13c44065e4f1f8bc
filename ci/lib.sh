# What the scripts of this folder share: installing what is missing, finding cargo, running Open MPI as root.
# Sourced, not run. After it, $root is the checkout and $target the folder of release builds.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck disable=SC2034 # used by those who source this
target=${CARGO_TARGET_DIR:-$root/target}/release

say() {
    printf '\n== %s\n' "$*"
}

fail() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# installed PATTERN: whether a package of that name (a glob is allowed) is installed.
installed() {
    dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed
}

# need_apt PACKAGE...: installs those that are missing. `a|b*` is satisfied by any of them; a is what gets installed.
need_apt() {
    if [[ -n ${REDMPI_NO_INSTALL:-} ]]; then
        return
    fi
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        fail "this system has no apt. Needed, by their Debian names: ${*%%|*}. Install their like," \
            "then set REDMPI_NO_INSTALL=1 to go on without this check."
    fi
    local wanted alternative missing=() alternatives
    for wanted in "$@"; do
        IFS='|' read -ra alternatives <<<"$wanted"
        for alternative in "${alternatives[@]}"; do
            if installed "$alternative"; then
                continue 2
            fi
        done
        missing+=("${alternatives[0]}")
    done
    if ((${#missing[@]} == 0)); then
        return
    fi
    local as_root=()
    if ((EUID != 0)); then
        command -v sudo >/dev/null || fail "as root, please: apt-get install ${missing[*]}"
        as_root=(sudo)
    fi
    say "installing ${missing[*]}"
    if [[ -z ${apt_is_fresh:-} ]]; then
        "${as_root[@]}" apt-get update -q || fail "apt-get update failed; needed: ${missing[*]}"
        apt_is_fresh=yes
    fi
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" ||
        fail "apt-get could not install: ${missing[*]}"
}

# What building needs. OMPI_DIR names an Open MPI of the user's own.
need_build() {
    need_apt build-essential ca-certificates 'libclang-dev|libclang-[0-9]*-dev'
    if [[ -z ${OMPI_DIR:-} ]]; then
        need_apt libopenmpi-dev openmpi-bin
        # The headers of series 5 include those of PMIx.
        if mpicc --showme:version 2>&1 | grep -q 'Open MPI 5'; then
            need_apt libpmix-dev
        fi
    else
        PATH=$OMPI_DIR/bin:$PATH
    fi
    need_cargo
}

# need_cargo: a cargo as new as Cargo.toml wants it.
need_cargo() {
    if ! command -v cargo >/dev/null && [[ -x ${CARGO_HOME:-$HOME/.cargo}/bin/cargo ]]; then
        PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
    fi
    local wanted found
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -n 1)
    command -v cargo >/dev/null ||
        fail "cargo is missing. Install Rust $wanted or newer, as https://rustup.rs says, and run this again."
    found=$(cargo --version | awk '{ print $2 }')
    if [[ $(printf '%s\n' "$wanted" "$found" | sort -V | head -n 1) != "$wanted" ]]; then
        fail "cargo $found is too old, $wanted or newer is needed: run \`rustup update stable\`, or where the" \
            "system's own Rust was found, install one as https://rustup.rs says."
    fi
}

# need_mpi4py_tests: mpi4py's own test suite, of the version that the system's python3-mpi4py has. The source comes from
# PyPI once, is known by its sha256, and is kept in the user's cache; REDMPI_MPI4PY tells the tests where it was unpacked.
# Where it cannot be had, they say that they are left out, and so does this; in continuous integration it is an error.
need_mpi4py_tests() {
    local version=3.1.4 sha256=17858f2ebc623220d0120d1fa8d428d033dde749c4bc35b33d81a66ad7f93480
    local cache=${XDG_CACHE_HOME:-$HOME/.cache}/redmpi file
    file=$cache/mpi4py-$version.tar.gz
    need_apt python3-mpi4py python3-numpy
    if ! echo "$sha256  $file" | sha256sum --check --status 2>/dev/null; then
        need_apt python3-pip python3-setuptools
        say "mpi4py $version, source"
        mkdir -p "$cache"
        local fetched
        fetched=$(mktemp -d "$cache/fetch.XXXXXX")
        echo "mpi4py==$version --hash=sha256:$sha256" >"$fetched/wanted.txt"
        # The system's own: pip needs setuptools beside it to look into a source package.
        if /usr/bin/python3 -m pip download --quiet --no-deps --no-binary :all: --no-build-isolation --require-hashes \
            --requirement "$fetched/wanted.txt" --dest "$fetched"; then
            mv "$fetched/mpi4py-$version.tar.gz" "$file"
        fi
        rm -rf "$fetched"
    fi
    if ! echo "$sha256  $file" | sha256sum --check --status 2>/dev/null; then
        [[ -z ${CI:-} ]] || fail "mpi4py's source could not be had"
        echo "mpi4py's source could not be had: its tests are left out" >&2
        return
    fi
    local folder=$target/../suites
    mkdir -p "$folder"
    tar -xf "$file" -C "$folder"
    REDMPI_MPI4PY=$(cd "$folder/mpi4py-$version" && pwd)
    export REDMPI_MPI4PY
}

# Open MPI wants to be told that root may run jobs; for these scripts only.
allow_root() {
    if ((EUID == 0)); then
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    fi
}
