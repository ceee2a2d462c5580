#!/usr/bin/env bash
# Plants each bug of tests/mutants/*.patch into a copy of the tree and demands that a test finds it.
# Usage: run.sh [NAME]    only the patches with NAME in their file name
#
# A patch is a unified diff (-p1) below two kinds of lines:
#   # trap: <which trap it plants, in words>
#   # red: <regex of the ctest names that must go red>, or `compile` for those of tests/static
#
# A mutant is killed by a test that fails or by a static assertion; it has to compile otherwise.
# Exit code 1 if one survives, does not apply or does not compile, or if a test is red without any.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$PWD/build/mutants
tree=$work/tree
build=$work/build

field() { sed -n "s/^# $1: //p" "$2" | paste -sd' '; }  # field <name> <patch>

copy_tree() {  # files that did not change keep their time, so that nothing else is built again
  local file
  mkdir -p "$tree"
  find CMakeLists.txt bench cmake include tests examples -type f | sort >"$work/files"
  (cd "$tree" && find . -type f -printf '%P\n' | sort) | comm -13 "$work/files" - |
    while read -r file; do rm "$tree/$file"; done
  while read -r file; do
    cmp -s "$file" "$tree/$file" || install -D "$file" "$tree/$file"
  done <"$work/files"
}

tests_of() {  # tests_of <regex>: the names that ctest knows
  ctest --test-dir "$build" -N -R "^($1)$" | sed -n 's/^ *Test *#[0-9]*: //p'
}

build_tests() {  # build_tests <red>; tests and targets differ in dots, examples in a prefix
  local targets=(static_tests)
  [[ $1 == compile ]] || mapfile -t targets < <(tests_of "$1" |
    sed '/^\(house\|compile_fail\)\./d; s/^example\.//; s/^\(openmpi\|mpich\)\.\(.*\)\.[0-9]*$/\1_\2/; s/\./_/g')
  [[ ${#targets[@]} -eq 0 ]] || cmake --build "$build" -j 2 --target "${targets[@]}" -- -k 0
}

run_tests() {  # run_tests <red>
  [[ $1 == compile ]] || ctest --test-dir "$build" -R "^($1)$" -j 2 --output-on-failure
}

verdict() {  # verdict <red>: what becomes of the mutant that now stands in the copy
  local errors
  if build_tests "$1" >"$log" 2>&1; then
    if run_tests "$1" >>"$log" 2>&1; then echo survived; else echo killed; fi
  else
    errors=$(grep 'error: ' "$log")
    if grep -qv 'static assertion' <<<"$errors"; then echo 'does not compile'; else echo killed; fi
  fi
}

shopt -s nullglob
patches=(tests/mutants/*"${1-}"*.patch)
if [[ ${#patches[@]} -eq 0 ]]; then
  echo "mutants: no patch in tests/mutants has '${1-}' in its name"
  exit 1
fi

mkdir -p "$work"
copy_tree
cmake -S "$tree" -B "$build" -G Ninja -DCMAKE_CXX_COMPILER=g++ -DCMAKE_CXX_FLAGS=-O1 \
  -DSHARDWISE_BENCH=OFF -DSHARDWISE_TEST_TIMEOUT=120 >"$work/configure.log" 2>&1 || {
  cat "$work/configure.log"
  exit 1
}

echo "mutants: building and running the tests concerned, which must be green as they are"
reds=()
for patch in "${patches[@]}"; do
  red=$(field red "$patch")
  [[ -n $red ]] || { echo "$patch: no line '# red: <regex>'"; exit 1; }
  [[ $red == compile || -n $(tests_of "$red") ]] || { echo "$patch: no test is named $red"; exit 1; }
  reds+=("$red")
done
mapfile -t once < <(printf '%s\n' "${reds[@]}" | sort -u)
for red in "${once[@]}"; do
  build_tests "$red"
  run_tests "$red"
done

survivors=0
printf '\n%-28s %-20s %5s  %s\n' mutant result s trap
for patch in "${patches[@]}"; do
  name=$(basename "$patch" .patch)
  log=$work/$name.log
  SECONDS=0
  if patch -d "$tree" -p1 -s --no-backup-if-mismatch <"$patch" >"$log" 2>&1; then
    result=$(verdict "$(field red "$patch")")
  else
    result='does not apply'
  fi
  copy_tree
  [[ $result == killed ]] || survivors=$((survivors + 1))
  printf '%-28s %-20s %5d  %s\n' "$name" "$result" "$SECONDS" "$(field trap "$patch")"
done
echo "mutants: ${#patches[@]} planted, $((${#patches[@]} - survivors)) killed, logs in build/mutants"
[[ $survivors -eq 0 ]]
