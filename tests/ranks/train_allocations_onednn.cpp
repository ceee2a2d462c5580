// What a steady-state call allocates, asked of the global allocator. oneDNN's own allocations are
// told apart by the address they are called from.
// Compiled alone: it replaces operator new.

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "shardwise/backend/attention.hpp"
#include "shardwise/backend/detail/attention_loops.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/models/gpt2.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/step.hpp"
#include "support/count_allocations.hpp"
#include "support/onednn_dtypes.hpp"
#include "unit/backend/linear_problem.hpp"

namespace {

std::atomic<std::size_t> ours{0};
std::atomic<std::size_t> our_bytes{0};
std::atomic<std::size_t> of_library{0};

void note(std::size_t bytes, const void* caller) {
  Dl_info where;
  const bool library = dladdr(caller, &where) != 0 && where.dli_fname != nullptr &&
                       std::strstr(where.dli_fname, "libdnnl") != nullptr;
  ++(library ? of_library : ours);
  if (!library) our_bytes += bytes;
}

/// How many allocations of f() are ours.
template <class F>
std::size_t ours_in(F f) {
  ours = our_bytes = of_library = 0;
  testing::note_allocation = note;
  f();
  testing::note_allocation = nullptr;
  return ours.load();
}

/// The same of f() on all ranks.
template <class C, class F>
std::size_t ours_on_all(C& ranks, F f) {
  ranks.barrier();
  const std::size_t count = ours_in([&] {
    ranks.barrier();
    f();
    ranks.barrier();
  });
  ranks.barrier();
  return count;
}

}  // namespace

using namespace shardwise;
using backend_test::LinearProblem;

TEST_CASE_TEMPLATE("calls with row counts that were seen before allocate nothing", T, float, bf16) {
  if (!testing::onednn_computes<T>()) return;
  OneDnn backend;
  OneDnn::Linear<T> kernel(backend, 48, 70);
  const auto full = LinearProblem<T>::of_integers(300, 48, 70);
  std::vector<T> y(300 * 70), dx(300 * 48), dw(70 * 48), db(70);

  const auto step = [&](std::size_t rows, std::uint64_t version, bool stays) {
    const Weight<T> weight{full.w.data(), version, stays};
    kernel.forward(rows, full.x.data(), weight, full.bias.data(), Activation::relu, y.data());
    kernel.backward_input(rows, full.dy.data(), weight, dx.data());
    for (const Write write : {Write::replace, Write::add})
      kernel.backward_weight(rows, full.x.data(), full.dy.data(), write, dw.data(), db.data());
  };
  const auto steps = [&](bool stays) {
    for (std::uint64_t i = 1; i <= 3; ++i) {
      for (const std::size_t rows : {300U, 1U, 44U}) step(rows, i, stays);
    }
  };
  for (const bool stays : {false, true}) {
    steps(stays);
    CHECK(ours_in([&] { steps(stays); }) == 0);
    CHECK(of_library.load() > 0);  // else the two were not told apart
  }
}

TEST_CASE_TEMPLATE("convolutions of two sizes of batch allocate nothing", T, float, bf16) {
  OneDnn backend;
  OneDnn::Convolution<T> kernel(backend, {1, 16, 32});
  const SpatialAxis axis{.input = 8, .output = 8, .kernel = 3, .before = 1};
  const std::vector<T> x(3 * 16 * 64, T{1}), w(32 * 16 * 9, T{1}), dy(3 * 32 * 64, T{1});
  std::vector<T> y(dy.size()), dx(x.size()), dw(w.size()), db(32);
  const auto steps = [&] {
    for (std::uint64_t i = 1; i <= 20; ++i) {
      for (const std::size_t images : {3U, 1U}) {
        const ConvolutionCall call{images, {SpatialAxis{}, axis, axis}};
        const Weight<T> weight{w.data(), i};
        kernel.forward(call, x.data(), weight, db.data(), Activation::relu, y.data());
        for (const Write write : {Write::replace, Write::add})
          kernel.backward(call, x.data(), dy.data(), weight, write, dw.data(), db.data(),
                          dx.data());
      }
    }
  };
  steps();
  CHECK(ours_in(steps) == 0);
}

TEST_CASE_TEMPLATE("attentions of two lengths allocate nothing", T, float, bf16) {
  OneDnn backend;
  const std::vector<T> in(2 * 150 * 4 * 8, T{1});
  std::vector<T> y(in.size()), dq(in.size()), dk(in.size()), dv(in.size());
  const auto steps = [&] {
    for (const std::size_t length : {150U, 20U}) {
      const TokenRows rows{2, length, length, 0, 0};
      const detail::AttentionOperands<T, RandomStream> of{{rows, rows, Sequences(length)},
                                                          {8, 2, 4, 4, 0, 2, 0},
                                                          0.5F,
                                                          0,
                                                          {RandomStream(Seed{1}, 0, 0), 0.25, 0},
                                                          in.data(),
                                                          in.data(),
                                                          in.data()};
      OneDnn::Attention<T> kernel(backend);
      kernel.forward(of, y.data());
      kernel.backward(of, in.data(), dq.data(), dk.data(), dv.data());
    }
  };
  steps();
  CHECK(ours_in(steps) == 0);
}

TEST_CASE_TEMPLATE("one query that sees one key more in each call allocates nothing", T, float,
                   bf16) {
  constexpr std::size_t most = 256;
  OneDnn backend;
  const std::vector<T> in(most * 4 * 8, T{1});
  std::vector<T> y(4 * 8);
  const auto see = [&](std::size_t keys) {
    const detail::AttentionOperands<T, RandomStream> of{
        {{1, 1, keys, 0, keys - 1}, {1, keys, keys, 0, 0}, Sequences(keys)},
        {8, 2, 4, 4, 0, 2, 0},
        0.5F,
        0,
        {RandomStream(Seed{1}, 0, 0), 0.25, 0},
        in.data(),
        in.data(),
        in.data()};
    OneDnn::Attention<T>(backend).forward(of, y.data());
  };
  see(most / 2 + 1);
  CHECK(ours_in([&] {
          for (std::size_t keys = most / 2 + 2; keys <= most; ++keys) see(keys);
        }) == 0);
}

namespace {

constexpr Kernel padded = kernel(3, {.padding = 1});

struct Network
    : Sequential<Conv2d<split::height, 2, 16, padded>, Relu, Conv2d<split::output, 16, 16, padded>,
                 Relu, Conv2d<split::input, 16, 3, 1>, Relu, Flatten,
                 ColumnParallelLinear<3 * 8 * 8, 96>, Gelu, Dropout<1, 4>,
                 RowParallelLinear<96, 10>> {};

Shape images(std::size_t batch) {
  return {{Axis::batch, batch}, {Axis::channel, 2}, {Axis::height, 8}, {Axis::width, 8}};
}

}  // namespace

TEST_CASE_TEMPLATE("training steps with two sizes of batch allocate nothing of ours", T, float,
                   bf16) {
  if (!testing::onednn_computes<T>()) return;
  run_ranks(2, [](ThreadCommunicator& ranks) {
    Model<Network, Context<T, OneDnn, ThreadCommunicator>> model(Network{}, ranks, Seed{1},
                                                                 images(20));
    Optimizer optimizer(model, AdamW{});
    const Place place = place_of(ranks);
    Tensor<T, Invariant> x(images(20), place);
    Tensor<std::int32_t, Invariant> labels(Shape{{Axis::batch, 20}}, place);
    const auto steps = [&] {
      for (int step = 0; step < 4; ++step) {
        const std::size_t batch = step % 2 == 0 ? 13 : 20;
        train_step(
            model, View<const T, Invariant>(x.data(), images(batch), place),
            View<const std::int32_t, Invariant>(labels.data(), Shape{{Axis::batch, batch}}, place),
            CrossEntropy{}, optimizer);
      }
    };
    steps();
    CHECK(ours_on_all(ranks, steps) == 0);
  });
}

namespace {

Shape text(std::size_t tokens) { return {{Axis::batch, 1}, {Axis::sequence, tokens}}; }

/// A small GPT for pieces of text of one length, with what trains it.
template <class C>
class Gpt {
 public:
  Gpt(C& ranks, std::size_t tokens)
      : model_(gpt2(config(tokens)), ranks, Seed{1}, text(tokens), backend_),
        optimizer_(model_, AdamW{}),
        ids_(text(tokens), place_of(ranks)),
        labels_(text(tokens), place_of(ranks)) {}

  void step() {
    train_step(model_, std::as_const(ids_).view(), std::as_const(labels_).view(), CrossEntropy{},
               optimizer_);
  }

 private:
  static Gpt2Config config(std::size_t tokens) {
    return {
        .vocabulary = 5, .positions = tokens, .features = 8, .hidden = 8, .heads = 2, .layers = 1};
  }

  using Net = decltype(gpt2(Gpt2Config{}));
  using Trained = Model<Net, Context<float, OneDnn, C>, Ends<Invariant, Sharded<Axis::feature>>>;

  OneDnn backend_;
  Trained model_;
  Optimizer<AdamW, Trained> optimizer_;
  Tensor<std::int32_t, Invariant> ids_, labels_;
};

/// All bytes that we allocate for a model and a step of its training.
std::size_t bytes_at(std::size_t tokens) {
  SingleRank alone;
  ours_in([&] { Gpt<SingleRank>(alone, tokens).step(); });
  return our_bytes.load();
}

}  // namespace

TEST_CASE("training steps of a GPT allocate nothing of ours after the second") {
  run_ranks(2, [](ThreadCommunicator& ranks) {
    Gpt<ThreadCommunicator> gpt(ranks, 150);  // several blocks of queries
    for (int i = 0; i < 2; ++i) gpt.step();
    const auto steps = [&] {
      for (int i = 0; i < 4; ++i) gpt.step();
    };
    CHECK(ours_on_all(ranks, steps) == 0);
  });
}

TEST_CASE("memory for training grows with the tokens of a sequence, not with their square") {
  CHECK(static_cast<double>(bytes_at(4096)) < 1.3 * 4 * static_cast<double>(bytes_at(1024)));
}

TEST_CASE("the counter counts") {
  CHECK(ours_in([] {
          std::vector<int> something(100);
          something.push_back(1);
        }) == 2);
}
