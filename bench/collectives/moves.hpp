#pragma once
// What threads.cpp and processes.cpp measure, on whatever ranks they have: every collective, the
// redistributions, and whole training steps. Prints one line a measurement, which
// threads_against_processes.py reads: name, bytes of the whole buffer (rows of a step), seconds.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/shardwise.hpp"

namespace bench {

namespace sw = shardwise;

inline std::vector<float> random_values(int rank, std::size_t n) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(n);
  std::generate(values.begin(), values.end(), [&] { return uniform(random); });
  return values;
}

/// Times calls that all ranks make together, from a barrier to a barrier.
template <class C>
class Stopwatch {
 public:
  explicit Stopwatch(C& ranks) : ranks_(&ranks) {}

  template <class Call>
  void time(const std::string& name, std::size_t bytes, std::size_t calls, Call call) {
    for (int i = 0; i < 3; ++i) call();
    ranks_->barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < calls; ++i) call();
    ranks_->barrier();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (ranks_->rank() == 0)
      std::printf("%s %zu %.9f\n", name.c_str(), bytes, took.count() / static_cast<double>(calls));
  }

 private:
  C* ranks_;
};

/// So many calls that a block takes some milliseconds.
inline std::size_t calls_for(std::size_t bytes) {
  return std::clamp<std::size_t>((std::size_t{1} << 23) / (bytes + 4096), 3, 512);
}

template <class C>
void measure_collectives(C& ranks, Stopwatch<C>& watch, std::size_t bytes) {
  const auto size = static_cast<std::size_t>(ranks.size());
  const std::size_t n = bytes / sizeof(float) / size * size;
  const std::size_t calls = calls_for(bytes);
  const std::vector<std::size_t> counts(size, n / size);
  const std::vector<float> in = random_values(ranks.rank(), n);
  const std::span<const float> block = std::span(in).first(n / size);
  std::vector<float> out(n);
  const std::span<float> part = std::span(out).first(n / size);
  watch.time("all_reduce", bytes, calls, [&] { ranks.template all_reduce<float>(in, out); });
  watch.time("all_gather", bytes, calls,
             [&] { ranks.template all_gather<float>(block, out, counts); });
  watch.time("reduce_scatter", bytes, calls,
             [&] { ranks.template reduce_scatter<float>(in, part, counts); });
  watch.time("broadcast", bytes, calls, [&] { ranks.broadcast(std::span(out), 0); });
  watch.time("gather", bytes, calls, [&] { ranks.template gather<float>(block, out, counts, 0); });
  watch.time("scatter", bytes, calls, [&] { ranks.template scatter<float>(in, part, counts, 0); });
  watch.time("all_to_all", bytes, calls,
             [&] { ranks.template all_to_all<float>(in, counts, out, counts); });
  if (ranks.size() == 1) return;
  watch.time("send_and_receive", bytes, calls, [&] {
    const int next = (ranks.rank() + 1) % ranks.size();
    const int previous = (ranks.rank() + ranks.size() - 1) % ranks.size();
    ranks.send(std::span<const float>(in), next);
    ranks.receive(std::span(out), previous);
  });
}

template <class From, class To, class C>
void measure_redistribution(C& ranks, Stopwatch<C>& watch, std::size_t bytes) {
  const std::size_t rows = std::max<std::size_t>(2, bytes / sizeof(float) / 64);
  const sw::Shape shape{{sw::Axis::batch, rows}, {sw::Axis::feature, bytes / sizeof(float) / rows}};
  const sw::Place place = sw::place_of(ranks);
  sw::Pool pool;
  std::vector<float> in =
      random_values(ranks.rank(), sw::local_shape<From>(shape, place).elements());
  std::vector<float> out(sw::local_shape<To>(shape, place).elements());
  const sw::View<const float, From> from(in, shape, place);
  const sw::View<float, To> to(out, shape, place);
  watch.time(sw::layout_name<From>() + "->" + sw::layout_name<To>(), bytes, calls_for(bytes),
             [&] { sw::redistribute(ranks, pool, from, to); });
}

/// Each that communicates, by rows (blocks that lie end to end) and by columns.
template <class C>
void measure_redistributions(C& ranks, Stopwatch<C>& watch, std::size_t bytes) {
  using namespace shardwise;
  using Rows = Sharded<Axis::batch>;
  using Columns = Sharded<Axis::feature>;
  measure_redistribution<Partial, Invariant>(ranks, watch, bytes);
  measure_redistribution<Partial, Rows>(ranks, watch, bytes);
  measure_redistribution<Partial, Columns>(ranks, watch, bytes);
  measure_redistribution<Rows, Invariant>(ranks, watch, bytes);
  measure_redistribution<Columns, Invariant>(ranks, watch, bytes);
  measure_redistribution<Rows, Columns>(ranks, watch, bytes);
  measure_redistribution<Columns, Rows>(ranks, watch, bytes);
}

struct Mlp : sw::Sequential<sw::ColumnParallelLinear<1024, 4096>, sw::Relu,
                            sw::RowParallelLinear<4096, 1024>> {};

/// Forward, loss, backward and SGD.
template <class C>
void measure_step(C& ranks, Stopwatch<C>& watch, std::size_t rows) {
  const sw::detail::onednn::ThreadLimit one_thread(1);
  sw::Model<Mlp, sw::Context<float, sw::OneDnn, C>> model(ranks, sw::Seed{1});
  sw::Optimizer optimizer(model, sw::Sgd{.learning_rate = 1e-6});
  const sw::Shape shape{{sw::Axis::batch, rows}, {sw::Axis::feature, 1024}};
  const std::vector<float> x = random_values(7, shape.elements());
  const std::vector<float> target = random_values(8, shape.elements());
  const sw::View<const float, sw::Invariant> in(x, shape, sw::place_of(ranks));
  const sw::View<const float, sw::Invariant> wanted(target, shape, sw::place_of(ranks));
  watch.time("train_step", rows, std::max<std::size_t>(3, 512 / rows),
             [&] { sw::train_step(model, in, wanted, sw::MeanSquaredError{}, optimizer); });
}

template <class C>
void measure(C& ranks) {
  Stopwatch<C> watch(ranks);
  for (std::size_t bytes = 64; bytes <= (std::size_t{16} << 20); bytes *= 4) {
    measure_collectives(ranks, watch, bytes);
    if (bytes >= 1024) measure_redistributions(ranks, watch, bytes);
  }
  for (const std::size_t rows : {16U, 128U, 512U}) measure_step(ranks, watch, rows);
}

}  // namespace bench
