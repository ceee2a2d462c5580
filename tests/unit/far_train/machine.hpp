#pragma once
// The same training on memory of the host and on memory that the host cannot touch.

#include <doctest/doctest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/step.hpp"
#include "support/far.hpp"
#include "support/filled.hpp"
#include "support/messages.hpp"
#include "support/plain_communicator.hpp"
#include "witness/formula.hpp"

namespace testing {

using namespace shardwise;

using Batch = Sharded<Axis::batch>;
using Feature = Sharded<Axis::feature>;
using Threads = PlainCommunicator<ThreadCommunicator>;

/// Numbers as bits, so that equal ones are equal in their signs too.
using Bits = std::vector<std::uint64_t>;

inline void note(Bits& bits, double number) {
  bits.push_back(std::bit_cast<std::uint64_t>(number));
}

/// Appends what lies where the backend's tensors do.
template <class B, class T>
void note(Bits& bits, B& backend, std::span<const T> there) {
  std::vector<T> here(there.size());
  detail::to_host(backend, there.data(), here.size(), here.data());
  for (const T number : here) note(bits, static_cast<double>(number));
}

/// A tensor where the backend's lie, of number(global element).
template <Element T, Layout L, class B, class F>
Value<T, L> placed(B& backend, Pool& pool, const Shape& shape, Place place, F number) {
  const auto here = filled<T, L>(shape, place, number);
  Value<T, L> there(pool, shape, place);
  detail::to_device(backend, here.data(), here.size(), there.writable().data());
  return there;
}

/// Calls f(backend, ranks), which returns Bits, on one rank and on threads, twice each: on memory
/// of the host, and far from it. It must come to the same bits.
template <class F>
void same_alone(F f) {
  SingleRank ranks;
  Reference near;
  Far far;
  const Bits expected = f(near, ranks);
  CHECK(!expected.empty());
  CHECK(f(far, ranks) == expected);
}
template <class F>
void same_on_threads(int size, F f) {
  CAPTURE(size);
  std::vector<Bits> expected(static_cast<std::size_t>(size));
  run_ranks(size, [&](ThreadCommunicator& threads) {
    Reference backend;
    Threads ranks(threads);
    expected[static_cast<std::size_t>(ranks.rank())] = f(backend, ranks);
  });
  run_ranks(size, [&](ThreadCommunicator& threads) {
    Far backend;
    FarCommunicator ranks(threads, backend);
    const Bits& near = expected[static_cast<std::size_t>(ranks.rank())];
    CHECK(!near.empty());
    CHECK(f(backend, ranks) == near);
  });
}

inline void note(Bits& bits, const std::string& text) {
  for (const char letter : text) bits.push_back(static_cast<unsigned char>(letter));
}

constexpr std::size_t samples = 7;
constexpr std::size_t inputs = 9;
constexpr std::size_t classes = 10;
inline const Shape inputs_shape{{Axis::batch, samples}, {Axis::feature, inputs}};
inline const Shape label_shape{{Axis::batch, samples}};
inline const Shape output_shape{{Axis::batch, samples}, {Axis::feature, classes}};

struct ByFeature
    : Sequential<ColumnParallelLinear<inputs, 13>, Relu, RowParallelLinear<13, classes>> {};
struct ByClass
    : Sequential<RowParallelLinear<inputs, 13>, Relu, ColumnParallelLinear<13, classes>> {};

/// A model, its optimizer, and a batch.
template <class Net, class P, class E, class Rule, class B, class C>
struct Training {
  using M = Model<Net, Context<P, B, C>, E>;
  using T = typename M::dtype;
  using In = typename E::offered;

  B& backend;
  Pool pool{detail::memory_of(backend)};
  M model;
  Optimizer<Rule, M> optimizer;
  Value<T, In> x;
  Value<std::int32_t, Invariant> labels;
  Value<T, Invariant> target;

  Training(B& given, C& ranks, const Rule& rule)
      : backend(given),
        model(Net{}, ranks, Seed{3}, inputs_shape, given),
        optimizer(model, rule),
        x(placed<T, In>(backend, pool, inputs_shape, place_of(ranks), made(2))),
        labels(placed<std::int32_t, Invariant>(
            backend, pool, label_shape, place_of(ranks),
            [](std::size_t i) { return witness::made_label(std::int64_t(i), classes); })),
        target(placed<T, Invariant>(backend, pool, output_shape, place_of(ranks), made(6, 100))) {}

  static auto made(std::int64_t number, double factor = 1) {
    return [=](std::size_t i) {
      return static_cast<accumulate_t<T>>(factor * witness::made(number, std::int64_t(i)));
    };
  }

  template <class Target, class Loss>
  double step(const Value<Target, Invariant>& given, const Loss& loss,
              const StepOptions& options = {}) {
    return train_step(model, x.view(), given.view(), loss, optimizer, options);
  }

  /// The parameters of the rank.
  void note_values(Bits& bits) {
    note(bits, backend, std::span<const typename M::parameter_dtype>(model.values()));
  }
};

}  // namespace testing
