#pragma once
// How a contender talks with peers.py. It prints lines `version <what> <text>` and
// `difference <tensor> <number>`, one at least for y and, if it can train, for each `grad.*` of the
// problem; then `ready`. From then on it sleeps until a line `forward <calls>` or
// `training <calls>` comes in, makes so many calls, and prints the nanoseconds of each in one line.
// It ends with its standard input.

#include <chrono>
#include <cstdint>
#include <cstdio>
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

/// Takes turns until `next()` gives none. All ranks call it; the first one measures. A quarter as
/// many calls go before, uncounted: others have been in the caches.
template <class Next, class Run>
void take_turns(bool speaks, Next next, Run run) {
  using Clock = std::chrono::steady_clock;
  if (speaks) std::printf("ready\n");
  std::fflush(stdout);
  for (Turn turn = next(); turn.calls > 0; turn = next()) {
    for (std::int64_t i = 0; i <= turn.calls / 4; ++i) run(turn.training != 0);
    std::vector<Clock::duration> times;
    for (std::int64_t i = 0; i < turn.calls; ++i) {
      const auto begin = Clock::now();
      run(turn.training != 0);
      times.push_back(Clock::now() - begin);
    }
    if (!speaks) continue;
    for (const Clock::duration time : times)
      std::printf("%lld ", static_cast<long long>(std::chrono::nanoseconds(time).count()));
    std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace peers
