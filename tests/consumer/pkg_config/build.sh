#!/usr/bin/env bash
# Builds and runs programs without CMake: one from a checkout and one with pkg-config.
# Usage: build.sh COMPILER CHECKOUT PREFIX [FLAG...]    in a folder to build in
set -euo pipefail
compiler=$1 checkout=$2 prefix=$3
shift 3
program=$checkout/tests/consumer/program

"$compiler" -std=c++20 "$@" -I "$checkout/include" "$program"/{main,use_parts}.cpp -pthread -o from_checkout
./from_checkout

if ! command -v pkg-config >/dev/null; then
  echo "skipped: pkg-config is not installed: pkgconf"
  exit
fi
export PKG_CONFIG_PATH=$prefix/share/pkgconfig
read -ra flags < <(pkg-config --cflags --libs shardwise)
"$compiler" -std=c++20 "$@" -DSMALL "$program"/{small,use_parts}.cpp "${flags[@]}" -o from_prefix
./from_prefix
version=$(pkg-config --modversion shardwise)
[[ $(./from_prefix) == "shardwise $version" ]] || { echo "pkg-config says $version" && exit 1; }
