"""What contenders in Python have in common; see turns.hpp for what they read and print."""

import sys
import time


def require_difference(name, difference, is_short, of_float, speaks=True):
    """Ends the contender if |got - exact| / |exact| is too large; results.hpp says why. `is_short`: of a
    dtype of two bytes; `of_float` is what may differ in float."""
    if speaks:
        print(f"difference {name} {difference:.3g}")
    allowed = (1 / 32 if name.startswith("grad.") else 1 / 128) if is_short else of_float
    if not difference <= allowed:
        sys.exit(f"{name} is wrong: |got - exact| / |exact| is {difference}, and at most {allowed} is "
                 "allowed")


def read_turn():
    """[1 if training else 0, calls]; no calls at the end of the input."""
    words = sys.stdin.readline().split()
    return [int(words[0] == "training"), int(words[1])] if words else [0, 0]


def timed_by_call(forward, train):
    """A block for take_turns, in which each call has a time of its own."""
    def block(training, calls):
        times = []
        for _ in range(calls):
            begin = time.perf_counter_ns()
            (train if training else forward)()
            times.append(time.perf_counter_ns() - begin)
        return times

    return block


def take_turns(block, share=lambda turn: turn, speaks=True):
    """block(training, calls) gives the nanoseconds of each of so many calls; share(turn) gives all ranks
    the turn of the first one, which speaks."""
    if speaks:
        print("ready", flush=True)
    while True:
        training, calls = share(read_turn() if speaks else [0, 0])
        if calls == 0:
            return
        block(training, 1 + calls // 4)  # others have been in the caches
        times = block(training, calls)
        if speaks:
            print(*times, flush=True)
