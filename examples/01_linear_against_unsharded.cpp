// One training step of a split linear layer, against the same step of the whole layer.
//
//     W [608, 1024]      column-parallel                row-parallel
//
//                     ┌────────────────┐            ┌───────┬────────┐
//                     │     rank 0     │            │       │        │
//                     ├────────────────┤            │ rank 0│ rank 1 │
//                     │     rank 1     │            │       │        │
//                     └────────────────┘            └───────┴────────┘
//
// X [32, 1024], target [32, 608], mean squared error, learning rate 0.3. On 1, 2, 3 and 4 ranks,
// split both ways, updated weight and bias, their gradients and the gradient of X equal those of
// one rank and of PyTorch. With several ranks, none allocates a block of memory as large as the
// full weight; with 4 ranks, all memory of a rank in the step is less than that. Then the layer
// evaluates, which packs its weight; still no block is as large.
//
// test:
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <tuple>
#include <vector>

#include "../tests/witness/formula.hpp"
#include "../tests/witness/values.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/shardwise.hpp"
#include "support/memory_meter.hpp"

namespace sw = shardwise;

namespace {

constexpr std::size_t rows = 32, in = 1024, out = 608;
constexpr std::size_t full_weight = in * out * sizeof(float);
constexpr double largest_allowed = 1e-6;           // absolute
constexpr double largest_allowed_relative = 3e-6;  // of the largest element of the tensor

const sw::Shape x_shape{{sw::Axis::batch, rows}, {sw::Axis::feature, in}};
const sw::Shape y_shape{{sw::Axis::batch, rows}, {sw::Axis::feature, out}};

/// Fills a rank's part of a tensor from a formula of the global element.
template <class L>
void fill(sw::View<float, L> tensor, std::int64_t number, double scale = 1) {
  for_each_global_run(tensor, [&](std::size_t global, std::size_t local, std::size_t length) {
    for (std::size_t i = 0; i < length; ++i)
      tensor[local + i] =
          static_cast<float>(scale * witness::made(number, static_cast<std::int64_t>(global + i)));
  });
}

enum Result : std::size_t { weight, bias, weight_gradient, bias_gradient, input_gradient, count };
constexpr std::array<const char*, count> names{"W", "b", "dW", "db", "dX"};

// begin: step
/// Runs one step of `Layer`. Calls see(tensor, view) with the rank's part of each of the five
/// results, and then after(model, x). Returns the loss.
template <class Layer, class Backend, class C, class See, class After>
double run_step(C& ranks, See&& see, After&& after) {
  using Model = sw::Model<Layer, sw::Context<float, Backend, C>,
                          sw::Ends<sw::Invariant, sw::Invariant>, sw::TrainWithInputGradient>;
  Model model(ranks, sw::Seed{1});
  model.visit_parameters([](auto& p) {
    const bool is_weight = p.name == "weight";
    fill(p.value, is_weight ? 12 : 13, is_weight ? 1.0 / 32 : 1.0);
  });
  model.values_changed();
  sw::Optimizer optimizer(model, sw::Sgd{.learning_rate = 0.3});

  const sw::Place place = sw::place_of(ranks);
  sw::Tensor<float, sw::Invariant> x(x_shape, place), target(y_shape, place), dy(y_shape, place);
  fill(x.view(), 11);
  fill(target.view(), 14);

  // The calls of train_step, one by one, to get the gradient of X.
  const auto y = model.forward(x.view());
  sw::LossFrame<typename Model::context, std::tuple<>> frame(model.run(), {}, {});
  const double loss = sw::MeanSquaredError{}(frame, y, target.view(), dy.view());
  see(input_gradient, model.backward(dy.view()));
  model.settle_gradients();
  optimizer.end_step();

  model.visit_parameters([&](auto& p) {
    see(p.name == "weight" ? weight : bias, p.value);
    see(p.name == "weight" ? weight_gradient : bias_gradient, p.gradient);
  });
  after(model, x.view());
  return loss;
}
// end: step

/// The five tensors of the whole layer.
struct Unsharded {
  std::array<std::vector<float>, count> tensors;
  double loss = 0;
};

Unsharded run_unsharded() {
  Unsharded result;
  sw::SingleRank alone;
  result.loss = run_step<sw::Linear<sw::split::none, in, out>, sw::Reference>(
      alone,
      [&](Result t, auto view) {
        result.tensors[t].assign(view.span().begin(), view.span().end());
      },
      [](auto&, auto) {});
  return result;
}

/// PyTorch's values in double: all elements of vectors, 500 samples of matrices.
const witness::Values& pytorch() {
  static const witness::Values values("unsharded/step");
  return values;
}

/// Keeps a NaN, so that no bound accepts it.
void raise(double& largest, double to) {
  if (to > largest || std::isnan(to)) largest = to;
}

/// The largest differences seen: [against unsharded, against PyTorch] of each tensor.
struct Differences {
  std::array<std::array<double, 2>, count> absolute{};

  template <class View>
  void see(Result t, View view, const Unsharded& expected) {
    double& from_unsharded = absolute[t][0];
    double& from_pytorch = absolute[t][1];
    const std::span<const double> values = pytorch()[names[t]];
    const auto size = static_cast<std::int64_t>(view.global().elements());
    for_each_global_run(view, [&](std::size_t global, std::size_t local, std::size_t length) {
      for (std::size_t i = 0; i < length; ++i)
        note(from_unsharded, view[local + i], static_cast<double>(expected.tensors[t][global + i]));
      for (std::size_t k = 0; k < values.size(); ++k) {
        const bool all = view.global().rank() == 1;
        const std::size_t at = all ? k
                                   : static_cast<std::size_t>(
                                         witness::sample_index(static_cast<std::int64_t>(k), size));
        if (at >= global && at < global + length)
          note(from_pytorch, view[local + (at - global)], values[k]);
      }
    });
  }

 private:
  static void note(double& largest, float value, double expected) {
    raise(largest, std::abs(static_cast<double>(value) - expected));
  }
};

/// What one rank holds and has allocated.
struct Memory {
  std::size_t weight = 0, largest_block = 0, most_held = 0, packed = 0;
};

/// Runs the layer over `ranks` ranks and prints how far its results are from the expected ones.
template <class Layer>
bool agrees(const char* name, int ranks, const Unsharded& expected) {
  std::vector<Differences> differences(static_cast<std::size_t>(ranks));
  std::vector<Memory> memory(static_cast<std::size_t>(ranks));
  std::vector<double> losses(static_cast<std::size_t>(ranks));
  sw::run_ranks(ranks, [&](sw::ThreadCommunicator& communicator) {
    const auto r = static_cast<std::size_t>(communicator.rank());
    const auto& meter = example::MemoryMeter::of_this_thread();
    losses[r] = run_step<Layer, sw::OneDnn>(
        communicator,
        [&](Result t, auto view) {
          differences[r].see(t, view, expected);
          if (t == weight) memory[r].weight = view.size() * sizeof(float);
        },
        [&](auto& model, auto x) {
          memory[r].most_held = meter.most_held;
          const std::size_t before = meter.held;
          model.evaluate(x);
          memory[r].packed = meter.held - before;
        });
    memory[r].largest_block = meter.largest_block;
  });

  bool good = true;
  std::printf("%s over %d rank(s), loss off by %.1e\n", name, ranks,
              std::abs(losses[0] - pytorch().number("loss")));
  std::printf("          from unsharded, relative   from PyTorch, relative\n");
  for (std::size_t t = 0; t < count; ++t) {
    double scale = 0;
    for (const float e : expected.tensors[t]) scale = std::max(scale, std::abs(double{e}));
    std::array<double, 2> largest{};
    for (std::size_t source = 0; source < 2; ++source) {
      for (const Differences& d : differences) raise(largest[source], d.absolute[t][source]);
      good = good && largest[source] <= largest_allowed &&
             largest[source] <= largest_allowed_relative * scale;
    }
    std::printf("    %-5s %14.1e %9.1e %14.1e %9.1e\n", names[t], largest[0], largest[0] / scale,
                largest[1], largest[1] / scale);
  }
  for (std::size_t r = 0; r < memory.size(); ++r) {
    std::printf(
        "    rank %zu holds %7zu bytes of W, packed %7zu; largest block %7zu, most in the step "
        "%8zu\n",
        r, memory[r].weight, memory[r].packed, memory[r].largest_block, memory[r].most_held);
    // Parts of the weight are packed. Above 2 MiB, as on one rank, it is read as it lies.
    good = good && (memory[r].packed >= memory[r].weight) == (ranks > 1);
    const bool has_full_weight = memory[r].largest_block >= full_weight;
    good = good && has_full_weight == (ranks == 1);  // on one rank the meter must find it
    if (ranks == 4) good = good && memory[r].most_held < full_weight;
  }
  return good;
}

}  // namespace

int main() try {
  const Unsharded expected = run_unsharded();
  std::printf("W has %zu bytes. Unsharded loss %.9f, PyTorch's %.9f\n", full_weight, expected.loss,
              pytorch().number("loss"));
  bool good = true;
  for (int ranks = 1; ranks <= 4; ++ranks) {
    good &= agrees<sw::ColumnParallelLinear<in, out>>("column", ranks, expected);
    good &= agrees<sw::RowParallelLinear<in, out>>("row", ranks, expected);
  }
  std::printf(
      good
          ? "all within %.0e (%.0e of the largest), and the full weight was on no rank of several\n"
          : "NOT all within %.0e (%.0e of the largest), or the full weight was on a rank\n",
      largest_allowed, largest_allowed_relative);
  return good ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "01_linear_against_unsharded: %s\n", e.what());
  return 1;
}
