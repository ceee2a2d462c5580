#!/bin/sh
# no_full_weight.sh PROGRAM LAUNCHER: whole weights do not fit, and parts of them do.
program=$1
launcher=$2
failures=0

check() {  # check <sentence> <percent of the weights> <processes> <how often>
  said=$(timeout 120 "$launcher" -n "$3" "$program" "$2" 2>&1 </dev/null)
  echo "$said" | sed -n "s/^rank/$3 processes, $2 % of the weights: rank/p"
  times=$(echo "$said" | grep -c -e "$1")
  if [ "$times" -ne "$4" ]; then
    echo "FAILED: not $4 times '$1', but:"
    echo "$said"
    failures=$((failures + 1))
  fi
}

# Four ranks train in less than the weights alone take; three as well.
check 'trained' 70 4 4
check 'trained' 90 3 3
# Two hold half of the weights and half of the gradients, together as much as all weights.
check 'trained' 120 2 2
# One rank runs out of memory in each of these, and says so.
check 'rank 0: .*no memory\|rank 0: .*no more memory' 70 1 1
check 'rank 0: .*no memory\|rank 0: .*no more memory' 90 1 1
check 'rank 0: .*no memory\|rank 0: .*no more memory' 120 1 1

[ "$failures" -eq 0 ]
