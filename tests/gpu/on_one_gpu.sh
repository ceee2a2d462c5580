#!/usr/bin/env bash
# Runs a program as ranks of NCCL that are processes and share a GPU. NCCL refuses two ranks of one machine on
# one GPU, so each says that it is on another machine, and they send over the loopback interface. When one
# has failed, those that have not ended ten seconds later are killed, and it is told who ended well. They are
# killed, too, when this script is interrupted.
# Usage: on_one_gpu.sh -n RANKS PROGRAM ARGUMENT...
set -uo pipefail
ranks=$2
shift 2

TMPDIR=$(mktemp -d)  # for NCCL's ids, which need a new folder
trap 'rm -r "$TMPDIR"' EXIT
trap 'kill -KILL $(jobs -p); exit 1' HUP INT TERM
export TMPDIR WORLD_SIZE=$ranks LOCAL_RANK=0 NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo

declare -A rank_of
for ((rank = 0; rank < ranks; ++rank)); do
  RANK=$rank NCCL_HOSTID=$rank "$@" &
  rank_of[$!]=$rank
done

status=0
ended=()    # well
patience=() # a process that ends ten seconds after the first failure
while [[ ${#rank_of[@]} -gt 0 ]]; do
  code=0
  wait -n -p process "${!rank_of[@]}" "${patience[@]}" || code=$?
  if [[ -z ${process:-} ]]; then  # wait -n leaves out whom a signal ended before it was called
    left=("${!rank_of[@]}")
    process=${left[0]} code=0
    wait "$process" || code=$?
  fi
  if [[ $process == "${patience[*]}" ]]; then
    patience=()
    kill -KILL "${!rank_of[@]}" 2>/dev/null
    continue
  fi
  rank=${rank_of[$process]}
  unset "rank_of[$process]"
  if [[ $code -eq 0 ]]; then
    ended+=("$rank")
    continue
  fi
  [[ $code -le 128 ]] || echo "rank $rank, process $process, was ended by signal $((code - 128))" >&2
  if [[ $status -eq 0 ]]; then
    sleep 10 >/dev/null 2>&1 &
    patience=("$!")
  fi
  status=1
done
[[ ${#patience[@]} -eq 0 ]] || kill "${patience[@]}"
if [[ $status -ne 0 && ${#ended[@]} -gt 0 ]]; then
  printf 'rank %s ended well, and others did not\n' "${ended[@]}" >&2
fi
exit "$status"
