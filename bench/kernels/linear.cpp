// One linear layer in float, through OneDnn::Linear and by the same primitives called by hand, and
// the multilayer perceptron 1024 -> 4096 -> 1024 made of two of them. One
// thread, and the time of that thread alone.
//
//     bench_kernels_linear [rounds]
//
// "packed": the weight stays and has been packed. "plain": it changes before every call, as in
// training. Speeds are those of each way against the first one of its group.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "kernels/by_hand.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/backend/reference.hpp"
#include "support/interleaved.hpp"
#include "support/random_values.hpp"
#include "support/rounds.hpp"

namespace {

using by_hand::Weights;
using shardwise::Activation;
using shardwise::OneDnn;
using shardwise::Reference;
using shardwise::Write;

/// Exits unless both hold the same numbers up to rounding.
void compare(const char* what, const std::vector<float>& ours, const std::vector<float>& exact,
             std::size_t length) {
  const double bound = 1e-6 * static_cast<double>(length);
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (std::abs(static_cast<double>(ours[i] - exact[i])) <= bound) continue;
    std::fprintf(stderr, "%s: element %zu is %g, not %g\n", what, i, static_cast<double>(ours[i]),
                 static_cast<double>(exact[i]));
    std::exit(1);
  }
}

/// One layer's matrices and its kernel.
struct Layer {
  std::size_t rows, in, out;
  std::vector<float> x, w, bias, y, dy, dx, dw, db;
  OneDnn::Linear<float> kernel;
  std::uint64_t version = 0;

  Layer(OneDnn& backend, std::size_t rows_, std::size_t in_, std::size_t out_)
      : rows(rows_),
        in(in_),
        out(out_),
        x(bench::random_values(rows * in, 1)),
        w(bench::random_values(out * in, 2)),
        bias(bench::random_values(out, 3)),
        y(rows * out),
        dy(bench::random_values(rows * out, 4)),
        dx(rows * in),
        dw(out * in),
        db(out),
        kernel(backend, in, out) {}

  dnnl_dim_t m() const { return static_cast<dnnl_dim_t>(rows); }
  dnnl_dim_t k() const { return static_cast<dnnl_dim_t>(in); }
  dnnl_dim_t n() const { return static_cast<dnnl_dim_t>(out); }

  /// Uses the weights until the kernel has packed them.
  void settle() {
    for (int use = 0; use < 20; ++use) {
      forward(Activation::none);
      backward_input();
    }
  }

  void forward(Activation activation) {
    kernel.forward(rows, x.data(), {w.data(), version}, bias.data(), activation, y.data());
  }
  void backward_input() { kernel.backward_input(rows, dy.data(), {w.data(), version}, dx.data()); }
  void backward_weight() {
    kernel.backward_weight(rows, x.data(), dy.data(), Write::replace, dw.data(), db.data());
  }

  by_hand::Product forward_by_hand(by_hand::Library& library, bool relu, Weights weights) {
    return by_hand::matmul(library, m(), k(), n(), x.data(), w.data(), true, y.data(), bias.data(),
                           relu, weights);
  }
  by_hand::Product forward_inner(by_hand::Library& library, bool relu) {
    return by_hand::inner_product(library, m(), k(), n(), x.data(), w.data(), y.data(), bias.data(),
                                  relu);
  }
  by_hand::Product input_by_hand(by_hand::Library& library, Weights weights) {
    return by_hand::matmul(library, m(), n(), k(), dy.data(), w.data(), false, dx.data(), nullptr,
                           false, weights);
  }
  by_hand::Product input_inner(by_hand::Library& library) {
    return by_hand::inner_product_backward(library, m(), k(), n(), dx.data(), w.data(), dy.data(),
                                           nullptr, nullptr);
  }
  by_hand::Product weight_inner(by_hand::Library& library) {
    return by_hand::inner_product_backward(library, m(), k(), n(), x.data(), w.data(), dy.data(),
                                           dw.data(), db.data());
  }

  /// All products, plain and packed, against the reference.
  void check_against_reference() {
    Reference reference;
    Reference::Linear<float> oracle(reference, in, out);
    std::vector<float> exact(rows * out), exact_dx(rows * in), exact_dw(out * in), exact_db(out);
    oracle.forward(rows, x.data(), {w.data(), 1}, bias.data(), Activation::relu, exact.data());
    oracle.backward_input(rows, dy.data(), {w.data(), 1}, exact_dx.data());
    oracle.backward_weight(rows, x.data(), dy.data(), Write::replace, exact_dw.data(),
                           exact_db.data());
    for (int use = 0; use < 20; ++use) {
      forward(Activation::relu);
      backward_input();
      if (use % 19 != 0) continue;  // the first use is plain, the last one packed
      compare("forward", y, exact, in);
      compare("backward_input", dx, exact_dx, out);
    }
    backward_weight();
    compare("backward_weight", dw, exact_dw, rows);
    compare("backward_weight, bias", db, exact_db, rows);
  }
};

std::string shape(const char* product, std::size_t rows, std::size_t in, std::size_t out) {
  return std::string(product) + ", " + std::to_string(rows) + " rows, " + std::to_string(in) +
         " -> " + std::to_string(out);
}

void measure_layer(OneDnn& backend, by_hand::Library& library, std::size_t rows, std::size_t in,
                   std::size_t out, const bench::Effort& effort) {
  Layer layer(backend, rows, in, out);
  layer.check_against_reference();
  const auto relu = [&] { layer.forward(Activation::relu); };

  const auto packed = layer.forward_by_hand(library, true, Weights::packed);
  bench::print(shape("forward, packed", rows, in, out),
               bench::interleave({{"matmul by hand", std::cref(packed)}, {"ours", relu}}, effort));
  const auto plain = layer.forward_by_hand(library, true, Weights::plain);
  const auto inner = layer.forward_inner(library, true);
  const auto packing = layer.forward_by_hand(library, true, Weights::packed_each_time);
  bench::print(shape("forward, plain", rows, in, out),
               bench::interleave({{"matmul by hand", std::cref(plain)},
                                  {"inner product by hand", std::cref(inner)},
                                  {"pack and matmul by hand", std::cref(packing)},
                                  {"ours", [&] { ++layer.version, relu(); }}},
                                 effort));

  const auto input = [&] { layer.backward_input(); };
  layer.settle();
  const auto input_packed = layer.input_by_hand(library, Weights::packed);
  bench::print(
      shape("backward_input, packed", rows, in, out),
      bench::interleave({{"matmul by hand", std::cref(input_packed)}, {"ours", input}}, effort));
  const auto input_plain = layer.input_by_hand(library, Weights::plain);
  const auto input_inner = layer.input_inner(library);
  const auto input_packing = layer.input_by_hand(library, Weights::packed_each_time);
  bench::print(shape("backward_input, plain", rows, in, out),
               bench::interleave({{"matmul by hand", std::cref(input_plain)},
                                  {"inner product by hand", std::cref(input_inner)},
                                  {"pack and matmul by hand", std::cref(input_packing)},
                                  {"ours", [&] { ++layer.version, input(); }}},
                                 effort));

  const auto weight_inner = layer.weight_inner(library);
  bench::print(shape("backward_weight with bias", rows, in, out),
               bench::interleave({{"inner product by hand", std::cref(weight_inner)},
                                  {"ours", [&] { layer.backward_weight(); }}},
                                 effort));
}

/// Two layers with a ReLU between them, forward and backward without the model's input gradient.
/// The ReLU's backward is the same loop in both.
void measure_mlp(OneDnn& backend, by_hand::Library& library, std::size_t rows,
                 const bench::Effort& effort) {
  Layer up(backend, rows, 1024, 4096);
  Layer down(backend, rows, 4096, 1024);
  // `up` writes to down.x. The backward of ReLU, from its output:
  const auto connect = [&] {
    for (std::size_t i = 0; i < up.dy.size(); ++i) up.dy[i] = down.x[i] > 0 ? down.dx[i] : 0.0F;
  };
  const auto up_forward = [&](Activation activation) {
    up.kernel.forward(rows, up.x.data(), {up.w.data(), up.version}, up.bias.data(), activation,
                      down.x.data());
  };
  const auto ours_forward = [&] {
    up_forward(Activation::relu);
    down.forward(Activation::none);
  };
  const auto ours_training = [&] {
    ++up.version;
    ++down.version;
    ours_forward();
    down.backward_weight();
    down.backward_input();
    connect();
    up.backward_weight();
  };

  const auto hand_up = [&](Weights weights) {
    return by_hand::matmul(library, up.m(), up.k(), up.n(), up.x.data(), up.w.data(), true,
                           down.x.data(), up.bias.data(), true, weights);
  };
  const auto up_packed = hand_up(Weights::packed);
  const auto down_packed = down.forward_by_hand(library, false, Weights::packed);
  up.settle();
  down.settle();
  bench::print("MLP 1024 -> 4096 -> 1024 forward, " + std::to_string(rows) + " rows",
               bench::interleave({{"packed matmul by hand", [&] { up_packed(), down_packed(); }},
                                  {"ours", ours_forward}},
                                 effort));

  const auto up_plain = hand_up(Weights::plain);
  const auto up_inner = by_hand::inner_product(library, up.m(), up.k(), up.n(), up.x.data(),
                                               up.w.data(), down.x.data(), up.bias.data(), true);
  const auto down_plain = down.forward_by_hand(library, false, Weights::plain);
  const auto down_inner = down.forward_inner(library, false);
  const auto input_plain = down.input_by_hand(library, Weights::plain);
  const auto input_inner = down.input_inner(library);
  const auto up_weight = up.weight_inner(library);
  const auto down_weight = down.weight_inner(library);
  const auto by_matmul = [&] {
    up_plain(), down_plain(), down_weight(), input_plain(), connect(), up_weight();
  };
  const auto by_inner = [&] {
    up_inner(), down_inner(), down_weight(), input_inner(), connect(), up_weight();
  };
  bench::print("MLP 1024 -> 4096 -> 1024 forward and backward, " + std::to_string(rows) + " rows",
               bench::interleave({{"matmul by hand", by_matmul},
                                  {"inner product by hand", by_inner},
                                  {"ours", ours_training}},
                                 effort));
}

/// The cost of a call: a product so small that little else is left.
void measure_call(OneDnn& backend, by_hand::Library& library) {
  Layer layer(backend, 4, 16, 16);
  layer.check_against_reference();
  const auto hand = layer.forward_by_hand(library, true, Weights::packed);
  const bench::Effort effort{201, 1e-3, bench::Clock::thread};
  const auto timings = bench::interleave(
      {{"matmul by hand", std::cref(hand)}, {"ours", [&] { layer.forward(Activation::relu); }}},
      effort);
  bench::print(shape("cost of a call", 4, 16, 16), timings);
  std::printf("  ours - by hand %.0f ns\n",
              (timings[1].seconds.median - timings[0].seconds.median) * 1e9);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = bench::begin_rounds(argc, argv);
  if (rounds == 0) return 2;
  const shardwise::detail::onednn::ThreadLimit one_thread(1);  // for the calls by hand too
  OneDnn backend;
  by_hand::Library library;
  measure_call(backend, library);
  const bench::Effort effort{rounds, 1e-3, bench::Clock::thread};
  for (const std::size_t rows : {16U, 128U, 512U}) measure_mlp(backend, library, rows, effort);
  for (const std::size_t rows : {1U, 16U, 128U, 512U}) {
    measure_layer(backend, library, rows, 1024, 4096, effort);
    measure_layer(backend, library, rows, 4096, 1024, effort);
  }
}
