#!/usr/bin/env bash
# Builds and runs a program without CMake: once from a checkout and once with pkg-config.
# Usage: build.sh COMPILER CHECKOUT PREFIX [FLAG...]    in a folder to build in
set -euo pipefail
compiler=$1 checkout=$2 prefix=$3
shift 3
program=$checkout/tests/consumer/program/main.cpp

"$compiler" -std=c++20 "$@" -I "$checkout/include" "$program" -pthread -o from_checkout
./from_checkout

if ! command -v pkg-config >/dev/null; then
  echo "skipped: pkg-config is not installed: pkgconf"
  exit
fi
export PKG_CONFIG_PATH=$prefix/share/pkgconfig
read -ra flags < <(pkg-config --cflags --libs shardwise)
"$compiler" -std=c++20 "$@" "$program" "${flags[@]}" -o from_prefix
./from_prefix
version=$(pkg-config --modversion shardwise)
[[ $(./from_prefix) == "shardwise $version" ]] || { echo "pkg-config says $version" && exit 1; }
