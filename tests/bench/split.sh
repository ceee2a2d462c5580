#!/bin/sh
# On three ranks the split tool compares all ways, passes in the bytes that a formula gives, refuses
# wrong use before it measures, and writes what docs/plots/split.py and bench/tables.py read. Of what all
# ranks refuse alike, processes are given one example, since each job takes a second to start.
# Usage: split.sh COMMAND...   which starts the program on three ranks
set -e
tree=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
cd "$work"

refuses() {  # refuses <sentence> <option>...: the sentence of $command, an exit code, and no figure
  sentence=$1
  shift
  if $command "$@" >stdout 2>stderr </dev/null; then echo "FAILED: took $*"; exit 1; fi
  if ! grep -q -e "$sentence" stderr || grep -q speedup stdout; then
    echo "FAILED: no '$sentence' on: $*"
    cat stdout stderr
    exit 1
  fi
}
command=$*
shapes=--shapes=8x8x8
refuses 'no shape to measure.*gpt3, grid, llama-70b, mlp, resnet50'
case $command in *--ranks=3)
  refuses "there is no preset 'gpt5'; there are gpt3, grid" --preset=gpt5
  refuses "'512x0x1024' is no shape: write rows x in x out" --shapes=512x0x1024
  refuses "'4x4x4x4' is no shape" --shapes=8x8x8,4x4x4x4
  refuses "'1000000000x4x4' is no shape" --shapes=1000000000x4x4
  refuses "'mkl' of this program computes in 'float'" $shapes --backends=mkl
  refuses "'reference' of this program computes in 'half'" $shapes --dtypes=half --backends=reference
  refuses '--rounds takes a number of at least 1' $shapes --rounds=0
  refuses 'unrecognized command-line flag: --no-such-option' $shapes --no-such-option
esac
refuses 'it may take .* GiB, and the machine has' --shapes=1000000x1000000x1000000
refuses '--ranks: Value 0 not in range 1 to 1024' $shapes --ranks=0

# Outputs that are even over three ranks, and an empty shard.
"$@" --shapes=4x8x12,3x5x2 --dtypes=float,double --backends=reference --rounds=2 \
  --benchmark_out=results.json >stdout 2>stderr </dev/null || { cat stdout stderr; exit 1; }
command -v python3 >/dev/null || exit 0
PYTHONPATH=$tree/bench python3 - <<'PYTHON'
import json, re, tables
names = set()
for benchmark in json.load(open("results.json"))["benchmarks"]:
    names.add(tables.name_of(benchmark))
    rows, ins, outs = map(int, re.match(r"(\d+)x(\d+)x(\d+), ", benchmark["name"]).groups())
    size = 8 if "double" in benchmark["name"] else 4
    # A gather takes each block once, a sum the whole of each rank.
    exact = {"unsplit": 0, "column": rows * outs * size, "row": 3 * rows * outs * size,
             "column-row": 3 * rows * ins * size, "column-gather-column": rows * (ins + outs) * size}
    for way, counted in tables.counters_of(benchmark).items():
        assert counted["planned bytes"] == exact[way], (benchmark["name"], way, counted)
        assert counted["seconds"] > 0
assert len(names) == 8, names
PYTHON

"$tree/bench/tables.py" results.json | grep -q '| 3x5x2, pair, 3 ranks, double by reference | '
command="python3 $tree/docs/plots/split.py"
echo '{}' >other.json
refuses 'other.json is not what shardwise-split writes' other.json pictures
refuses 'no rows of 7 ranks; there are 3' results.json pictures --ranks 7
if python3 -c 'import matplotlib' 2>stderr; then
  sed 's/"name": "4x8x12/"name": "grid 4x8x12/' results.json >grid.json
  $command results.json grid.json pictures --ranks 3
  for picture in winner time; do [ -s pictures/split_$picture.png ]; done
else
  echo 'skipped: drawing, as there is no matplotlib'
fi
