// Many runs each in which one rank throws, leaves early, or makes another call than its peers, at a
// random moment, in a random group of random groups. Everybody must learn of it, and nobody may
// touch memory of a rank that has gone (the sanitizers look).

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "shardwise/comm/thread_ranks.hpp"
#include "support/effort.hpp"

using namespace shardwise;

namespace {

enum class Fault { none, throws, leaves, differs };

/// One run, the same for all its ranks.
struct Plan {
  unsigned seed;
  Fault fault;
  int ranks, steps, victim, moment;

  Plan(unsigned s, Fault f) : seed(s), fault(f) {
    std::mt19937 random(s);
    ranks = 2 + static_cast<int>(random() % 5);
    steps = 1 + static_cast<int>(random() % 8);
    victim = static_cast<int>(random() % static_cast<unsigned>(ranks));
    moment = static_cast<int>(random() % static_cast<unsigned>(steps));
  }
};

struct Planted {};
struct Left {};

/// Works on memory that goes away as soon as this rank throws.
void collective(ThreadCommunicator& c, unsigned kind, bool differs) {
  const std::array<std::size_t, 4> sizes{0, 10, 700, 3000};
  const std::size_t n = sizes[kind / 8 % 4];
  const auto ranks = static_cast<std::size_t>(c.size());
  const auto rank = static_cast<std::size_t>(c.rank());
  const std::vector<std::size_t> counts(ranks, n);
  const std::vector<float> block(n, static_cast<float>(rank + 1));
  std::vector<float> blocks(n * ranks, static_cast<float>(rank + 1));
  std::vector<float> out(n + (differs ? 1 : 0), static_cast<float>(rank + 1));
  const auto all = static_cast<float>(ranks * (ranks + 1) / 2);
  bool right = true;
  switch (kind % 8) {
    case 0:
    case 1: {
      c.all_reduce<float>(out, out, kind % 8 == 1 ? Reduction::max : Reduction::sum);
      const float wanted = kind % 8 == 1 ? static_cast<float>(ranks) : all;
      right = out == std::vector<float>(n, wanted);
      break;
    }
    case 2:
      if (differs) return c.barrier();
      c.all_gather<float>(block, blocks, counts);
      for (std::size_t i = 0; i < blocks.size(); ++i)
        right &= blocks[i] == static_cast<float>(i / n + 1);
      break;
    case 3:
      out.resize(n);
      c.reduce_scatter<float>(blocks, out, counts, differs ? Reduction::min : Reduction::sum);
      right = out == std::vector<float>(n, all);
      break;
    case 4:
      out.resize(n);
      c.broadcast(std::span(out), differs ? 0 : c.size() - 1);
      right = out == std::vector<float>(n, static_cast<float>(ranks));
      break;
    case 5: {
      const std::vector<float> in = blocks;
      if (differs) return c.broadcast(std::span(blocks), 0);
      c.all_to_all<float>(in, counts, blocks, counts);
      for (std::size_t i = 0; i < blocks.size(); ++i)
        right &= blocks[i] == static_cast<float>(i / n + 1);
      break;
    }
    case 6: {
      std::vector<double> wide(n, 1);
      differs ? c.all_reduce<float>(out, out) : c.all_reduce<double>(wide, wide);
      right = wide == std::vector<double>(n, static_cast<double>(ranks));
      break;
    }
    default: {
      const bool root = rank + 1 == ranks;
      if (differs) c.barrier();
      out.resize(n);
      c.scatter<float>(root ? blocks : std::vector<float>(), out, counts, c.size() - 1);
      right = out == std::vector<float>(n, static_cast<float>(ranks));
    }
  }
  if (!right) throw std::logic_error("wrong result");
}

void run_rank(const Plan& plan, ThreadCommunicator& world, std::atomic<bool>& differed) {
  std::mt19937 same(plan.seed + 1);  // draws alike on all ranks
  std::mt19937 own(plan.seed * 64 + static_cast<unsigned>(world.rank()));
  std::vector<ThreadCommunicator> groups{world};
  for (int step = 0; step < plan.steps; ++step) {
    const unsigned which = static_cast<unsigned>(same());
    const unsigned kind = static_cast<unsigned>(same());
    const bool now = world.rank() == plan.victim && step == plan.moment;
    for (unsigned i = own() % 4; i > 0; --i) std::this_thread::yield();
    if (now && plan.fault == Fault::throws) throw Planted();
    if (now && plan.fault == Fault::leaves) throw Left();
    ThreadCommunicator& group = groups[which % groups.size()];
    if (now && plan.fault == Fault::differs && group.size() > 1) {
      // The last rank is a root above, so the planted root 0 differs as size() > 1.
      differed = true;
      collective(group, kind, true);
    } else if (kind % 3 == 0 && groups.size() < 6) {
      // Every rank splits its own group: they are cut in ways that depend on the rank.
      ThreadCommunicator part =
          group.split(static_cast<int>(kind / 3 + static_cast<unsigned>(group.rank())) % 2,
                      static_cast<int>(own() % 5));
      groups.push_back(part);
    } else {
      collective(group, kind, false);
    }
  }
  world.barrier();
}

struct Outcome {
  int planted = 0, peer = 0, collective = 0, other = 0, well = 0;
};

Outcome run(const Plan& plan, bool& differed_out) {
  std::atomic<int> planted{0}, peer{0}, collective{0}, other{0}, well{0};
  std::atomic<bool> differed{false};
  try {
    run_ranks(plan.ranks, [&](ThreadCommunicator& world) {
      try {
        run_rank(plan, world, differed);
        ++well;
      } catch (const Left&) {
        ++planted;
      } catch (const Planted&) {
        ++planted;
        throw;
      } catch (const peer_error&) {
        ++peer;
        throw;
      } catch (const collective_error&) {
        ++collective;
        throw;
      } catch (...) {
        ++other;
        throw;
      }
    });
  } catch (const error&) {
  }
  differed_out = differed;
  return {planted, peer, collective, other, well};
}

const auto repetitions = static_cast<unsigned>(testing::cases(250));

/// Runs many plans; judge(plan, outcome, differed) says whether one ended as it should.
template <class Judge>
void repeat(Fault fault, Judge judge) {
  unsigned wrong = 0;
  unsigned first_wrong = 0;
  for (unsigned seed = 0; seed < repetitions; ++seed) {
    const Plan plan(seed, fault);
    bool differed = false;
    const Outcome outcome = run(plan, differed);
    if (judge(plan, outcome, differed)) continue;
    if (wrong++ == 0) first_wrong = seed;
  }
  CAPTURE(first_wrong);
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("random runs without a fault") {
  repeat(Fault::none,
         [](const Plan& plan, const Outcome& o, bool) { return o.well == plan.ranks; });
}

TEST_CASE("at a random moment a rank throws") {
  repeat(Fault::throws, [](const Plan& plan, const Outcome& o, bool) {
    return o.planted == 1 && o.peer == plan.ranks - 1;
  });
}

TEST_CASE("at a random moment a rank leaves") {
  repeat(Fault::leaves, [](const Plan& plan, const Outcome& o, bool) {
    return o.planted == 1 && o.peer == plan.ranks - 1;
  });
}

TEST_CASE("at a random moment a rank makes another call") {
  unsigned seen = 0;
  repeat(Fault::differs, [&](const Plan& plan, const Outcome& o, bool differed) {
    if (!differed) return o.well == plan.ranks;
    ++seen;
    return o.collective >= 2 && o.collective + o.peer == plan.ranks;
  });
  CHECK(2 * seen > repetitions);
}
