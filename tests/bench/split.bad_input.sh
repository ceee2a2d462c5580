#!/bin/sh
# What shardwise-split says to bad input, before it measures anything.
# Usage: split.bad_input.sh PROGRAM
# Each case must end with an exit code other than 0, not by a signal, print no result, and say the
# sentence exactly once.
program=$1
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
  elif grep -q 'speedup' "$work/stdout"; then
    complain "a result was printed on: $*"
  else
    echo "$*"
    sed 's/^/    /' "$work/stderr"
  fi
}

refuses 'no shape to measure.*gpt3, grid, llama-70b, mlp, resnet50'
refuses "there is no preset 'gpt5'; there are gpt3, grid, llama-70b, mlp, resnet50" -p gpt5
refuses "the shape '512x0x1024' has an extent of 0" -s 512x0x1024
refuses "the shape '512x4096' has not three extents" -s 512x4096
refuses "the shape '512xx4096' is no list of three whole numbers" -s 512xx4096
refuses "the shape 'wide' is no list of three whole numbers" -s wide
refuses "the shape '4x-4x4' is no list of three whole numbers" -s 4x-4x4
refuses "the shape '4x4x4x4' goes on behind its three extents" -s 8x8x8,4x4x4x4
refuses "the shape '4x4x4.5' goes on behind" -s 4x4x4.5
refuses 'has an extent above 1000000000' -s 99999999999999999999999x4x4

refuses "file of shapes $work/nowhere cannot be read" --shapes-file "$work/nowhere"
refuses "file of shapes $work cannot be read" --shapes-file "$work"
printf '# none\n\n' >"$work/shapes"
refuses 'shapes holds no shape' --shapes-file "$work/shapes"
printf '8x8x8  # good\n\n8x8\n' >"$work/shapes"
refuses "shapes:3: the shape '8x8' has not three extents" --shapes-file "$work/shapes"

refuses '--ranks: Value 0 not in range' -s 8x8x8 -r 0
refuses '--ranks: Value -2 not in range' -s 8x8x8 --ranks=-2
refuses '--ranks: Value 100000 not in range' -s 8x8x8 -r 2,100000
refuses '--ranks: Value many not in range' -s 8x8x8 -r many
refuses '--rounds: Value 0 not in range' -s 8x8x8 --rounds 0
refuses '--rows: Value 0 not in range' -p mlp --rows 0
refuses '--shrink: Value 0 not in range' -p mlp --shrink 0
refuses '--images: Value 0 not in range' -p resnet50 --images 0
refuses '--dtypes: half not in {float,bf16,double}' -s 8x8x8 -t half
refuses '--backends: mkl not in {onednn,cblas,reference}' -s 8x8x8 -b mkl
refuses 'not expected: --no-such-option' -s 8x8x8 --no-such-option
refuses '\(onednn does not; docs/backends.md\|built without the backend onednn\)' \
  -s 8x8x8 -t double -b onednn
refuses '\(cblas does not; docs/backends.md\|built without the backend cblas\)' \
  -s 8x8x8 -t bf16 -b cblas

refuses "$work/nowhere/a.csv cannot be written: No such file" -s 8x8x8 -o "$work/nowhere/a.csv"
mkdir "$work/a.json"
refuses "$work/a.json cannot be written: Is a directory" -s 8x8x8 -o "$work/a.json" --overwrite
refuses '/proc/a.csv cannot be written' -s 8x8x8 -o /proc/a.csv
refuses 'ends neither in .csv nor in .json' -s 8x8x8 -o "$work/a.txt"
refuses '--resume excludes --overwrite' -s 8x8x8 -o "$work/a.csv" --resume --overwrite

kept() {  # kept <sentence> <file> <argument>...: the same, and the file stays as it was
  sentence=$1
  file=$2
  shift 2
  cp "$file" "$work/copy"
  refuses "$sentence" -s 8x8x8 -o "$file" "$@"
  cmp "$file" "$work/copy" || complain "$file was changed"
}

echo 'rows,seconds' >"$work/other.csv"
kept 'other.csv is there already: --resume goes on with it, --overwrite begins anew' "$work/other.csv"
kept 'other.csv cannot be resumed: its columns are other ones' "$work/other.csv" --resume
echo '[{"rows": 1}]' >"$work/other.json"
kept 'other.json cannot be resumed: its rows have other members' "$work/other.json" --resume
echo '[{"rows": 1}' >"$work/cut.json"
kept 'cut.json cannot be resumed: it is no JSON list' "$work/cut.json" --resume
echo '{}' >"$work/object.json"
kept 'object.json cannot be resumed: it is no JSON list' "$work/object.json" --resume

# More than the machine's memory is left out, and said.
refuses 'layer, 1 rank, float by reference is left out: it may take .* TiB, and the machine has' \
  -s 1000000x1000000x1000000 -r 1 -b reference

# More ranks than cores are measured, with a note.
"$program" -s 4x8x8 -r 9 -b reference --rounds 1 >"$work/stdout" 2>"$work/stderr" ||
  complain 'nine ranks were refused'
cores=$(nproc)
[ "$cores" -ge 9 ] || grep -q "note: 9 ranks share $cores cores" "$work/stderr" ||
  complain 'nine ranks: no note'
"$program" -s 4x8x8 -r 1 -t float,double -b reference,onednn --rounds 1 >"$work/stdout" \
  2>"$work/stderr"
grep -q 'note: onednn does not compute in double\|built without the backend onednn' "$work/stderr" ||
  complain 'a pair of dtype and backend was left out without a note'

[ "$failures" -eq 0 ]
