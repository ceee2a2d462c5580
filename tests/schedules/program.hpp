#pragma once
// A small random program of ranks in which one may be at fault, and what must come of it.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "shardwise/comm/thread_ranks.hpp"

namespace schedules {

/// Memory that is overwritten when it is freed, so that a late read is a wrong result.
template <class T>
struct Poisoning : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = Poisoning<U>;
  };
  void deallocate(T* data, std::size_t n) {
    std::memset(static_cast<void*>(data), 0x7f, n * sizeof(T));
    std::allocator<T>::deallocate(data, n);
  }
};
using Values = std::vector<float, Poisoning<float>>;

enum class Fault { none, throws, leaves, differs, awaits_nothing, stays_away };
constexpr const char* fault_names[] = {"none",    "throws",         "leaves",
                                       "differs", "awaits_nothing", "stays_away"};

struct Planted {};
struct Left {};
struct WrongResult {};

struct Program {
  std::uint64_t seed;
  Fault fault;
  int ranks;
  int steps;
  int culprit;
  int moment;  ///< the step of the fault
};

inline Program random_program(std::uint64_t seed) {
  std::minstd_rand random(static_cast<std::minstd_rand::result_type>(seed + 1));
  random.discard(2);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  Program p{seed, static_cast<Fault>(seed % std::size(fault_names)), 2 + below(3), 1 + below(5), 0,
            0};
  p.culprit = below(p.ranks);
  p.moment = below(p.steps);
  return p;
}

template <class C>
struct Group {
  C ranks;
  std::vector<int> members;  ///< in the world
};

/// Where ranks on the host have their values. Each call is done when it returns.
struct OnHost {
  static constexpr bool sends_wait = false;
  static void fill(Values& values, float value) { std::fill(values.begin(), values.end(), value); }
  static void finish() {}
};

/// Values are not freed while work on them is under way.
template <class Place>
struct Finish {
  Place& place;
  ~Finish() { place.finish(); }
};

inline void expect(bool right) {
  if (!right) throw WrongResult();
}

/// One collective with values that tell rank and step. `extra` elements make the call another one.
template <class C, class Place>
void collective(Group<C>& group, Place& place, unsigned kind, int step, std::size_t extra) {
  constexpr std::size_t sizes[] = {1, 10, 600, 1300};  // copied and read in place
  const std::size_t n = sizes[kind / 5 % 4] + extra;
  const std::size_t size = group.members.size();
  const auto value = [&](int rank) { return static_cast<float>(rank + 1 + 10 * step); };
  const auto all = [](const Values& values, float x) {
    return std::all_of(values.begin(), values.end(), [=](float y) { return y == x; });
  };
  float sum = 0;
  for (const int rank : group.members) sum += value(rank);
  const std::vector<std::size_t> counts(size, n);
  Values in(kind % 5 == 2 ? n * size : n), out(kind % 5 == 1 ? n * size : n);
  const Finish<Place> at_end{place};
  place.fill(in, value(group.members[static_cast<std::size_t>(group.ranks.rank())]));
  const auto reuse_input = [&] {
    place.fill(in, -1);
    place.finish();
  };
  switch (kind % 5) {
    case 0:
      group.ranks.template all_reduce<float>(in, out);
      reuse_input();
      return expect(all(out, sum));
    case 1:
      group.ranks.template all_gather<float>(in, out, counts);
      reuse_input();
      for (std::size_t i = 0; i < out.size(); ++i) expect(out[i] == value(group.members[i / n]));
      return;
    case 2:
      group.ranks.template reduce_scatter<float>(in, out, counts);
      reuse_input();
      return expect(all(out, sum));
    case 3:
      group.ranks.template broadcast<float>(in, static_cast<int>(size) - 1);
      place.finish();
      return expect(all(in, value(group.members.back())));
    default:
      return group.ranks.barrier();
  }
}

template <class C>
Group<C> halves(Group<C>& group, int me) {
  Group<C> half{group.ranks.split(me % 2, me), {}};
  for (const int rank : group.members)
    if (rank % 2 == me % 2) half.members.push_back(rank);
  return half;
}

/// To the next rank, from the one before. Where sends wait, one rank begins with its receive.
template <class C, class Place>
void message(C& world, Place& place, std::size_t n, int step) {
  const float value = 1.f + static_cast<float>(step);
  const int ranks = world.size();
  Values out(n), in(n);
  const Finish<Place> at_end{place};
  place.fill(out, value);
  const auto receive = [&] {
    world.template receive<float>(in, (world.rank() + ranks - 1) % ranks, step);
  };
  const bool receives_first = Place::sends_wait && world.rank() == 0;
  if (receives_first) receive();
  world.template send<float>(out, (world.rank() + 1) % ranks, step);
  if (!receives_first) receive();
  place.finish();
  expect(in == Values(n, value));
}

inline constexpr std::chrono::milliseconds timeout{1000};

template <class C>
void be_at_fault(Fault fault, C& world) {
  constexpr int tag_of_no_message = 99;
  float nothing = 0;
  switch (fault) {
    case Fault::throws:
      throw Planted();
    case Fault::leaves:
      throw Left();
    case Fault::awaits_nothing:
      return world.template receive<float>({&nothing, 1}, (world.rank() + 1) % world.size(),
                                           tag_of_no_message);
    case Fault::stays_away:
      return sim::this_thread::sleep_for(timeout + timeout / 2);
    case Fault::none:
    case Fault::differs:
      return;
  }
}

/// What one rank does. All ranks draw the same calls. The last one needs every rank.
template <class C, class Place>
void run(const Program& p, C& world, Place& place) {
  std::minstd_rand random(static_cast<std::minstd_rand::result_type>(p.seed + 7));
  random.discard(2);
  std::vector<Group<C>> groups{{world, {}}};
  for (int rank = 0; rank < p.ranks; ++rank) groups[0].members.push_back(rank);
  for (int step = 0; step < p.steps; ++step) {
    const auto kind = static_cast<unsigned>(random() / 16);
    const auto act = random() / 16 % 10;
    Group<C>& group = groups[random() / 16 % groups.size()];
    const bool at_fault = world.rank() == p.culprit && step == p.moment;
    if (at_fault) be_at_fault(p.fault, world);
    if (act < 2 && groups.size() < 3)
      groups.push_back(halves(group, world.rank()));
    else if (act == 2)
      message(world, place, kind % 40, step);
    else
      collective(group, place, kind, step, at_fault && p.fault == Fault::differs ? 1 : 0);
  }
  world.barrier();
}

}  // namespace schedules
