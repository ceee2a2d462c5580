#pragma once
// How a contender talks with peers.py. It prints lines `version <what> <text>` and
// `difference <tensor> <number>`, one at least for y and, if it can train, for each `grad.*` of the
// problem; then `ready`. From then on it sleeps until a line `forward <calls>`, `training <calls>`
// or, for whole steps of training, `step <calls>` comes in, makes so many calls, and prints the
// nanoseconds of each in one line. It ends with its standard input.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

namespace peers {

/// What a contender is to do next; nothing more if there are no calls.
struct Turn {
  std::int64_t training = 0;  // 0 or 1
  std::int64_t calls = 0;
};

/// The next line of standard input.
inline Turn read_turn() {
  std::string mode;
  Turn turn;
  if (std::cin >> mode >> turn.calls) turn.training = mode == "training" ? 1 : 0;
  return turn;
}

/// Takes turns until `next()` gives none. All ranks call it; the first one measures.
/// block(training, calls) makes so many calls and gives the nanoseconds of each. A quarter as many
/// go before, uncounted: others have been in the caches.
template <class Next, class Block>
void take_blocks(bool speaks, Next next, Block block) {
  if (speaks) std::printf("ready\n");
  std::fflush(stdout);
  for (Turn turn = next(); turn.calls > 0; turn = next()) {
    block(turn.training != 0, turn.calls / 4 + 1);
    const std::vector<std::int64_t> times = block(turn.training != 0, turn.calls);
    if (!speaks) continue;
    for (const std::int64_t time : times) std::printf("%lld ", static_cast<long long>(time));
    std::printf("\n");
    std::fflush(stdout);
  }
}

/// The same for calls of run(training), each with a time of its own.
template <class Next, class Run>
void take_turns(bool speaks, Next next, Run run) {
  take_blocks(speaks, next, [&](bool training, std::int64_t calls) {
    using Clock = std::chrono::steady_clock;
    std::vector<std::int64_t> times;
    for (std::int64_t i = 0; i < calls; ++i) {
      const auto begin = Clock::now();
      run(training);
      times.push_back(std::chrono::nanoseconds(Clock::now() - begin).count());
    }
    return times;
  });
}

/// main() of a contender that is one process: its exit code.
template <class F>
int contend_alone(F f) try {
  f();
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}

}  // namespace peers
