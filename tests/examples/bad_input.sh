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
