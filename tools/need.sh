#!/bin/sh
# Installs the Debian packages that are missing, after saying what and why.
#   tools/need.sh GROUP...      groups: build test lint fuzz (see below)
set -u
build="gcc cmake ninja-build pkg-config libjansson-dev libpcre2-dev zlib1g-dev libedit-dev libhwloc-dev libexpat1-dev libxxhash-dev libssl-dev liburing-dev libevent-dev libjs-chart.js"
test="libcmocka-dev python3"
lint="clang-format clang-tidy clang"
fuzz="clang libclang-rt-14-dev"

want=""
for group in "$@"; do
    case $group in
    build) want="$want $build" ;;
    test) want="$want $build $test" ;;
    lint) want="$want $build $test $lint" ;;
    fuzz) want="$want $build $test $fuzz" ;;
    *) echo "need.sh: no group '$group'" >&2; exit 2 ;;
    esac
done

command -v dpkg-query >/dev/null 2>&1 || exit 0    # not Debian: cmake will name what is missing
missing=""
for package in $want; do
    case " $missing " in *" $package "*) continue ;; esac
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

echo "Trireme needs these Debian packages to build and test, and they are not installed:"
echo "  $missing"
if [ "$(id -u)" -eq 0 ]; then
    as=""
elif command -v sudo >/dev/null 2>&1; then
    as="sudo"
else
    echo "Neither root nor sudo here. Ask an administrator to run:  apt-get install$missing" >&2
    exit 1
fi
echo "Installing them with: $as apt-get install"
$as env DEBIAN_FRONTEND=noninteractive apt-get update -q >/dev/null || echo "apt-get update failed; trying with the old lists" >&2
# shellcheck disable=SC2086
$as env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >/dev/null || {
    echo "apt-get could not install:$missing" >&2
    exit 1
}
