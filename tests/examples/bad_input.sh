# What the tests of bad input to examples share; a script that has set $program reads it by `.`.
# Each case must end with an exit code other than 0, not by a signal, print no result, and say the
# sentence exactly once.
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
failures=0

complain() {
  echo "FAILED: $1"
  sed 's/^/    /' "$work/stdout" "$work/stderr"
  failures=$((failures + 1))
}

refuses() {  # refuses <sentence> <argument>...
  sentence=$1
  shift
  "$program" "$@" >"$work/stdout" 2>"$work/stderr"
  code=$?
  said=$(grep -c -e "$sentence" "$work/stderr")
  if [ "$code" -eq 0 ] || [ "$code" -ge 128 ]; then
    complain "exit code $code of: $*"
  elif [ "$said" -ne 1 ]; then
    complain "not once, but $said times '$sentence' on: $*"
  elif grep -q '^epoch' "$work/stdout"; then
    complain "a result was printed on: $*"
  else
    echo "$*"
    sed 's/^/    /' "$work/stderr"
  fi
}

# The arguments are the long option of ranks, and those of synthetic data.
refuses_as_all() {
  ranks=$1
  shift
  refuses 'not expected: --no-such-option' --no-such-option
  refuses '0 ranks were asked for; at least one is needed' "$@" -s 0
  refuses 'ranks were asked for; at least one is needed' "$@" "$ranks=-2"
  refuses "Could not convert: $ranks = many" "$ranks" many
  refuses '--device: gpu not in {auto,cpu,cuda}' --device gpu
  refuses 'this program was built without devices. Choose the host, or auto' "$@" -s 3 --device cuda
  refuses '--batch: Value 0 not in range' "$@" -b 0
  refuses '--batch: Value -5 not in range' "$@" --batch=-5
  refuses '--epochs: Value 0 not in range' "$@" -e 0
  refuses 'install the Debian package dataset-fashion-mnist' -s 3 --data-dir "$work/nowhere"
}

# Leaves too little memory for the cases that follow. Sanitizers cannot start like that.
limit_memory() {
  if (ulimit -v 1000000 && "$program" --help) >"$work/stdout" 2>"$work/stderr"; then
    ulimit -v 1000000
  else
    echo 'skipped: too little memory, in a build with a sanitizer'
    false
  fi
}
