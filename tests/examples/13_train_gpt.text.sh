#!/bin/sh
# Example 13 writes as many characters as it is told, the same in each way, at 1 and at 2 ranks.
# Usage: 13_train_gpt.text.sh PROGRAM
program=$1

sum_of_text() {  # sum_of_text WAY RANKS CHARACTERS: the checksum of what comes behind the last step, and its bytes
  "$program" --way "$1" -s "$2" --write "$3" --text /usr/share/common-licenses/Apache-2.0 -b 4 --steps 12 |
    sed '1,/^step 12 /d' | cksum
}

written=$(sum_of_text tensor 1 100)
echo "$written"
case $written in
  *' 105') ;;  # "The ", the characters, and the end of the line
  *) exit 1 ;;
esac
for way in tensor sequence context; do
  [ "$(sum_of_text $way 2 100)" = "$written" ] || { echo "$way: another text at 2 ranks" && exit 1; }
done
case $(sum_of_text tensor 2 0) in
  *' 0') ;;
  *) exit 1 ;;
esac
