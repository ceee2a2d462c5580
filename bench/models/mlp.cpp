// The perceptron 1024 -> 4096 -> 1024 as a model: against the same oneDNN calls written by hand on
// one rank, and on two ranks against two independent halves of it, which is the most that two cores
// can give. Also what one more layer call costs.
//
//     bench_models_mlp [rounds]

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "models/mlp_by_hand.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/shardwise.hpp"
#include "support/interleaved.hpp"
#include "support/random_values.hpp"
#include "support/rounds.hpp"

namespace {

namespace sw = shardwise;

constexpr std::size_t in = 1024, hidden = 4096, out = 1024;

struct Mlp : sw::Sequential<sw::ColumnParallelLinear<in, hidden>, sw::Relu,
                            sw::RowParallelLinear<hidden, out>> {};

template <class C>
using MlpOn = sw::Model<Mlp, sw::Context<float, sw::OneDnn, C>>;

sw::Shape batch_of(std::size_t rows, std::size_t features) {
  return {{sw::Axis::batch, rows}, {sw::Axis::feature, features}};
}

/// A model with the weights of `hand`, or of the rank's part of them, and its input and gradient.
template <class C>
struct Ours {
  Ours(C& ranks, std::size_t rows, const by_hand::Mlp& whole)
      : model(ranks, sw::Seed{1}),
        x(whole.x.data(), batch_of(rows, in), sw::place_of(ranks)),
        dy(whole.dy.data(), batch_of(rows, out), sw::place_of(ranks)) {
    const auto set = [&](const char* name, const std::vector<float>& values, sw::Shape shape) {
      model.set(name, {values.data(), shape, sw::place_of(ranks)});
    };
    set("0.weight", whole.w1, {{sw::Axis::output, hidden}, {sw::Axis::input, in}});
    set("0.bias", whole.b1, {{sw::Axis::output, hidden}});
    set("2.weight", whole.w2, {{sw::Axis::output, out}, {sw::Axis::input, hidden}});
    set("2.bias", whole.b2, {{sw::Axis::output, out}});
  }

  void forward() { y = model.evaluate(x); }
  void train() {
    model.forward(x);
    model.backward(dy);
    model.next_step();
  }

  MlpOn<C> model;
  sw::View<const float, sw::Invariant> x, dy, y;
};

void require_equal(const char* what, const std::vector<float>& exact, const float* got) {
  for (std::size_t i = 0; i < exact.size(); ++i) {
    if (std::abs(exact[i] - got[i]) <= 1e-3F * (1.0F + std::abs(exact[i]))) continue;
    std::fprintf(stderr, "%s: element %zu is %g, not %g\n", what, i, static_cast<double>(got[i]),
                 static_cast<double>(exact[i]));
    std::exit(1);
  }
}

void measure_one_rank(by_hand::Library& library, std::size_t rows, const bench::Effort& effort) {
  by_hand::Mlp hand(library, rows, in, hidden, out);
  sw::SingleRank alone;
  Ours ours(alone, rows, hand);
  hand.forward_packed();
  ours.forward();
  require_equal("forward", hand.y, ours.y.data());
  hand.train_by_inner_product();
  ours.model.forward(ours.x);
  ours.model.backward(ours.dy);
  require_equal("gradient", hand.dw1, ours.model.gather_gradient("0.weight").data());
  ours.model.next_step();

  const std::string title = "one rank, " + std::to_string(rows) + " rows, ";
  bench::print(title + "forward",
               bench::interleave({{"oneDNN by hand, packed", [&] { hand.forward_packed(); }},
                                  {"model", [&] { ours.forward(); }}},
                                 effort));
  bench::print(
      title + "forward and backward",
      bench::interleave({{"oneDNN by hand, inner product", [&] { hand.train_by_inner_product(); }},
                         {"oneDNN by hand, matmul", [&] { hand.train_by_matmul(); }},
                         {"model", [&] { ours.train(); }}},
                        effort));
}

using Clock = std::chrono::steady_clock;

/// Seconds of one call when all ranks start together, until all are done.
template <class Run>
double together(sw::ThreadCommunicator& ranks, int calls, Run&& run) {
  ranks.barrier();
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) run();
  ranks.barrier();
  return std::chrono::duration<double>(Clock::now() - begin).count() / calls;
}

/// One rank on one core, two halves without any communication, and two ranks, in turns.
void measure_two_ranks(std::size_t rows, int rounds) {
  sw::run_ranks(2, [&](sw::ThreadCommunicator& ranks) {
    const sw::detail::onednn::ThreadLimit one_thread(1);
    by_hand::Library library;
    by_hand::Mlp whole(library, rows, in, hidden, out);
    by_hand::Mlp half(library, rows, in, hidden / 2, out);
    sw::SingleRank alone;
    Ours single(alone, rows, whole);
    Ours two(ranks, rows, whole);
    whole.forward_packed();
    two.forward();
    require_equal("two ranks", whole.y, two.y.data());

    const bool first = ranks.rank() == 0;
    for (const bool training : {false, true}) {
      const auto run = [&](auto& ours) { training ? ours.train() : ours.forward(); };
      const auto run_half = [&] {
        training ? half.train_by_inner_product() : half.forward_packed();
      };
      for (int i = 0; i < 10; ++i) run(single), run(two), run_half();
      const int calls = std::max(1, static_cast<int>(2048 / rows / (training ? 3 : 1)));
      std::vector<double> speedup, of_ceiling, seconds;
      for (int round = 0; round < rounds; ++round) {
        const double one = together(ranks, calls, [&] {
          if (first) run(single);
        });
        const double ceiling = together(ranks, calls, run_half);
        const double ours = together(ranks, calls, [&] { run(two); });
        seconds.push_back(ours);
        speedup.push_back(one / ours);
        of_ceiling.push_back(ceiling / ours);
      }
      if (!first) continue;
      const auto time = bench::Spread::of(seconds);
      const auto over_one = bench::Spread::of(speedup);
      const auto over_ceiling = bench::Spread::of(of_ceiling);
      std::printf(
          "two ranks, %zu rows, %s\n  %.2f us [%.2f, %.2f]   over one rank %.3f [%.3f, "
          "%.3f]   of two free halves %.3f [%.3f, %.3f]\n",
          rows, training ? "forward and backward" : "forward", time.median * 1e6, time.p10 * 1e6,
          time.p90 * 1e6, over_one.median, over_one.p10, over_one.p90, over_ceiling.median,
          over_ceiling.p10, over_ceiling.p90);
      std::fflush(stdout);
    }
  });
}

/// A layer so small that little but the call is left, against its primitive called alone.
void measure_layer_call(by_hand::Library& library) {
  constexpr std::size_t rows = 4, features = 16;
  struct Layer : sw::Linear<sw::split::none, features, features> {};
  sw::SingleRank alone;
  sw::Model<Layer, sw::Context<float, sw::OneDnn, sw::SingleRank>> model(alone, sw::Seed{1});
  std::vector<float> x = bench::random_values(rows * features), y(x.size());
  const auto weights = model.values();
  const auto hand =
      by_hand::matmul(library, rows, features, features, x.data(), weights.data(), true, y.data(),
                      weights.data() + features * features, false, by_hand::Weights::packed);
  const sw::View<const float, sw::Invariant> input(x.data(), batch_of(rows, features),
                                                   sw::place_of(alone));
  const auto timings = bench::interleave(
      {{"matmul by hand", [&] { hand(); }}, {"layer", [&] { model.evaluate(input); }}},
      {201, 1e-3, bench::Clock::thread});
  bench::print("cost of a layer call, 4 rows, 16 -> 16", timings);
  std::printf("  layer - by hand %.0f ns\n",
              (timings[1].seconds.median - timings[0].seconds.median) * 1e9);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = bench::begin_rounds(argc, argv);
  if (rounds == 0) return 2;
  {
    const sw::detail::onednn::ThreadLimit one_thread(1);  // for the calls by hand
    by_hand::Library library;
    measure_layer_call(library);
    for (const std::size_t rows : {16U, 128U, 512U})
      measure_one_rank(library, rows, {rounds, 1e-3, bench::Clock::thread});
  }
  for (const std::size_t rows : {16U, 128U, 512U}) measure_two_ranks(rows, rounds);
}
