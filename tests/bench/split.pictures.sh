#!/bin/sh
# docs/plots/split.py draws what shardwise-split writes, and says what is wrong with anything else.
# Usage: split.pictures.sh PROGRAM
program=$1
plots=$(cd "$(dirname "$0")/../../docs/plots" && pwd)
command -v python3 >/dev/null || exit 77
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
cd "$work" || exit 1

says() {  # says <sentence> <argument>...: ends with that sentence, and no trace of Python
  sentence=$1
  shift
  if python3 "$plots/split.py" "$@" >output 2>&1; then
    echo "FAILED: ended well: $*"
    exit 1
  fi
  if ! grep -q -e "$sentence" output || grep -q Traceback output; then
    echo "FAILED: no '$sentence' on: $*"
    cat output
    exit 1
  fi
  cat output
}

"$program" -s 3x5x2 -b reference -r 1,2 --rounds 1 -o results.csv >output 2>&1 || exit 1

says 'nowhere.csv cannot be read' nowhere.csv pictures
printf 'rows,seconds\n1,2\n' >other.csv
says 'other.csv has no column name' other.csv pictures
head -n 1 results.csv >empty.csv
says 'empty.csv holds no rows' empty.csv pictures
sed 's/3x5x2,3,5/3x5x2,three,5/' results.csv >wrong.csv
says 'wrong.csv, line 2, is no measurement' wrong.csv pictures
says 'no rows of 7 ranks; there are 1, 2' results.csv pictures --ranks 7
says 'no rows of the dtype bf16.*there are float' results.csv pictures --dtype bf16

mkdir without
echo 'raise ImportError("none")' >without/matplotlib.py
cp results.csv before
PYTHONPATH=$work/without says 'matplotlib is not installed.*results.csv is whole.*pip install' \
  results.csv pictures
cmp results.csv before || exit 1

if python3 -c 'import matplotlib' 2>output; then
  touch file
  says 'pictures cannot be written' results.csv file/pictures
  sed '1d; s/^3x5x2,/grid,/' before >>results.csv
  python3 "$plots/split.py" results.csv pictures || exit 1
  for picture in winner time scaling; do [ -s pictures/split_$picture.png ] || exit 1; done
else
  echo 'skipped: drawing, as there is no matplotlib'
fi
