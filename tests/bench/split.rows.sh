#!/bin/sh
# A tiny sweep of shardwise-split gives the right rows, alike in CSV and JSON, whose planned bytes are
# those that were counted; resumed and interrupted, it gives the same rows and no half of one.
# Usage: split.rows.sh PROGRAM
program=$1
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
cd "$work" || exit 1

fail() {
  echo "FAILED: $*"
  exit 1
}

cat >shapes <<'SHAPES'
4x8x12   # outputs even over 3 ranks
3x5x2    # with an empty shard
SHAPES
sweep() { "$program" --shapes-file shapes -r 1,3 -t float,double -b reference --rounds 2 "$@"; }
# 2 shapes x 2 counts of ranks x 2 dtypes x (3 ways of one product + 3 of a pair)
rows=48

sweep -o whole.csv -o whole.json >table 2>stderr || fail "$(cat stderr)"
[ "$(grep -c , whole.csv)" -eq $((rows + 1)) ] || fail "whole.csv has $(grep -c , whole.csv) lines"
[ "$(grep -c '^  [a-z-]* \*' table)" -eq $((rows / 3)) ] || fail 'not one winner a group'

# The number of a column, by its name.
column() { head -n 1 whole.csv | tr , '\n' | grep -n -x "$1" | cut -d : -f 1; }
awk -F , -v planned="$(column planned_bytes)" -v counted="$(column counted_bytes)" \
  -v way="$(column split)" -v ranks="$(column ranks)" -v out="$(column out)" \
  -v rows="$(column rows)" -v dtype="$(column dtype)" -v of="$(column of)" -v in_="$(column in)" \
  -v total="$(column total_us)" '
  NR == 1 { next }
  $planned != $counted { print "planned " $planned ", counted " $counted; bad = 1 }
  { size = $dtype == "double" ? 8 : 4; expected[$way] = -1 }
  # A gather takes each block once, a sum the whole of every rank.
  $way == "unsplit" { bytes = 0 }
  $way == "column" { bytes = $rows * $out * size }
  $way == "row" { bytes = $rows * $out * size * $ranks }
  $way == "column-row" { bytes = $rows * $in_ * size * $ranks }
  $way == "column-gather-column" { bytes = ($rows * $out + $rows * $in_) * size }
  $planned != bytes { print $way " passes in " $planned " bytes, not " bytes; bad = 1 }
  $total <= 0 { print "no time: " $0; bad = 1 }
  { seen[$way]++ }
  END {
    for (one in seen) { n++; if (seen[one] != (one == "unsplit" ? 16 : 8)) bad = 1 }
    exit bad || n != 5
  }' whole.csv || fail 'wrong numbers'

if command -v python3 >/dev/null; then
  python3 - <<'PYTHON' || fail 'CSV and JSON differ'
import csv, json
with open("whole.csv", newline="") as file:
    lines = list(csv.DictReader(file))
with open("whole.json") as file:
    objects = json.load(file)
assert len(lines) == len(objects)
for line, one in zip(lines, objects):
    assert list(line) == list(one)
    for name, value in one.items():
        assert line[name] == value if isinstance(value, str) else float(line[name]) == value, name
PYTHON
else
  echo 'skipped: python3 reads CSV and JSON'
fi

names() { cut -d , -f 1-10 "$1" | sort; }
resumes() {  # resumes <file> <rows that are kept>: has the rows of a whole sweep in the end
  head -n "$2" "$1" >before
  sweep -o "$1" --resume >table 2>stderr || fail "$(cat stderr)"
  [ "$(names "$1")" = "$(names whole.csv)" ] || fail "$1, resumed, has other rows"
  head -n "$2" "$1" | cmp - before || fail "$1, resumed, lost rows that were there"
}

# A whole file stays as it is, bit by bit; of a cut one whole groups are kept, the rest is measured.
cp whole.csv a.csv
cp whole.json a.json
sweep -o a.csv -o a.json --resume >table 2>stderr || fail "$(cat stderr)"
cmp a.csv whole.csv && cmp a.json whole.json || fail 'a whole file was changed'
grep -q '16 groups of rows were there already' stderr || fail "$(cat stderr)"
# Ten groups, a group that lacks a row, and half a row.
head -n 33 whole.csv >cut.csv
printf '3x5x2,3,5,2,lay' >>cut.csv
resumes cut.csv 31

# Interrupted, it ends soon, with code 130, and files are whole.
"$program" -s 64x512x512,65x512x512 -r 1,2 -b reference --rounds 100000 -o late.csv -o late.json \
  >table 2>stderr &
pid=$!
sleep 1
kill -INT $pid 2>/dev/null
wait $pid
code=$?
[ $code -eq 130 ] || fail "code $code after an interrupt"
grep -q 'interrupted after 0 groups of rows; --resume measures the rest' stderr || fail "$(cat stderr)"
[ "$(cat late.csv)" = "$(head -n 1 whole.csv)" ] || fail 'late.csv is not its header'
[ "$(tr -d '\n' <late.json)" = '[]' ] || fail 'late.json is no empty list'

# What no longer fits on the disk leaves no half of a row, and is told.
if (ulimit -f 8 && trap '' XFSZ && sweep -o full.csv) >table 2>stderr; then
  fail 'a file beyond its limit was written'
fi
grep -q 'full.csv cannot be written: File too large' stderr || fail "$(cat stderr)"
[ "$(tail -c 1 full.csv | od -An -c | tr -d ' ')" = '\n' ] || fail 'half a line in full.csv'
[ $(($(grep -c , full.csv) % 3)) -eq 1 ] || fail 'half a group in full.csv'
resumes full.csv "$(grep -c , full.csv)"
