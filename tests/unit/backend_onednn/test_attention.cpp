// Attention by blocks and products of oneDNN against plain loops in double.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "shardwise/backend/attention.hpp"
#include "shardwise/backend/detail/attention_loops.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/core/sequences.hpp"

using namespace shardwise;

namespace {

using Stream = RandomStream;

/// An attention of a rank: what each row sees, and the heads in memory.
struct Problem {
  AttentionTokens tokens;
  AttentionHeads heads;
  double soft_cap = 0;
  double dropped = 0;
};

/// Two samples of `length` rows, of which the rank has `here` queries from row `first` on.
AttentionTokens tokens_of(std::size_t length, bool causal, std::size_t window = 0,
                          std::size_t first = 0, std::size_t here = dynamic) {
  const std::size_t rows = here == dynamic ? length : here;
  return {
      {2, rows, length, 0, first}, {2, length, length, 0, 0}, Sequences(length), causal, window};
}

/// The rank has the query heads from `first` on, and the key heads that they read.
AttentionHeads heads_of(std::size_t size, std::size_t readers, std::size_t first,
                        std::size_t count) {
  const std::size_t first_key = first / readers;
  const std::size_t keys = count == 0 ? 0 : (first + count - 1) / readers - first_key + 1;
  return {size, readers, first + count, count, first, keys, first_key};
}

/// The operands and results of a problem in T.
template <class T>
struct Numbers {
  std::vector<T> q, k, v, dy, y, dq, dk, dv;

  explicit Numbers(const Problem& p)
      : q(made(queries(p), 1)), k(made(keys(p), 2)), v(made(keys(p), 3)), dy(made(queries(p), 4)) {
    // Every result is assigned, so what was there before does not matter.
    for (auto* result : {&y, &dq}) result->assign(q.size(), T(7));
    for (auto* result : {&dk, &dv}) result->assign(k.size(), T(7));
  }

  auto operands(const Problem& p) const {
    return detail::AttentionOperands<T, Stream>{
        p.tokens,
        p.heads,
        static_cast<T>(1 / std::sqrt(static_cast<double>(p.heads.size))),
        static_cast<T>(p.soft_cap),
        {Stream(Seed{5}, 1, 2), p.dropped, 0},
        q.data(),
        k.data(),
        v.data()};
  }

 private:
  static std::size_t queries(const Problem& p) {
    return p.tokens.queries.count() * p.heads.queries * p.heads.size;
  }
  static std::size_t keys(const Problem& p) {
    return p.tokens.keys.count() * p.heads.keys * p.heads.size;
  }
  /// The same floats in every T.
  static std::vector<T> made(std::size_t count, std::uint64_t tensor) {
    const RandomStream random(Seed{1}, 0, 0, tensor);
    std::vector<T> numbers(count);
    for (std::size_t i = 0; i < count; ++i)
      numbers[i] = static_cast<T>(4 * random.uniform(i) - 2.0F);
    return numbers;
  }
};

Numbers<double> by_loops(const Problem& p) {
  Numbers<double> n(p);
  const auto of = n.operands(p);
  const std::size_t rows = p.tokens.queries.count() * p.heads.queries;
  const detail::AttentionForward<double, Stream> forward{of, n.y.data()};
  for (std::size_t i = 0; i < rows; ++i) forward(i);
  std::vector<detail::SoftmaxRow<double>> softmax(rows);
  const detail::AttentionSlopes<double, Stream> slopes{of, n.dy.data(), softmax.data()};
  const detail::AttentionBackwardQueries<double, Stream> queries{slopes, n.dq.data()};
  for (std::size_t i = 0; i < rows; ++i) queries(i);
  const detail::AttentionBackwardKeys<double, Stream> keys{slopes, n.dk.data(), n.dv.data()};
  for (std::size_t i = 0; i < p.tokens.keys.count() * p.heads.keys; ++i) keys(i);
  return n;
}

Numbers<float> by_products(const Problem& p) {
  Numbers<float> n(p);
  OneDnn backend;
  const auto of = n.operands(p);
  OneDnn::Attention<float> attention(backend);
  attention.forward(of, n.y.data());
  attention.backward(of, n.dy.data(), n.dq.data(), n.dk.data(), n.dv.data());
  return n;
}

/// The largest difference, over the largest number.
double error_of(const std::vector<float>& ours, const std::vector<double>& exact) {
  double largest = 1e-30, difference = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    largest = std::max(largest, std::abs(exact[i]));
    const double here = std::abs(static_cast<double>(ours[i]) - exact[i]);
    difference = here <= difference ? difference : here;  // keeps NaN
  }
  return difference / largest;
}

/// About four times the largest error of these problems with AVX-512, 5.0e-7: sums of at most 300
/// terms in float.
constexpr double bound = 2e-6;

void check(const Problem& p) {
  const Numbers<double> exact = by_loops(p);
  const Numbers<float> ours = by_products(p);
  CHECK(error_of(ours.y, exact.y) < bound);
  CHECK(error_of(ours.dq, exact.dq) < bound);
  CHECK(error_of(ours.dk, exact.dk) < bound);
  CHECK(error_of(ours.dv, exact.dv) < bound);
}

}  // namespace

TEST_CASE("heads read their own key head, a shared one, or one") {
  for (const std::size_t readers : {1U, 2U, 4U})
    for (const bool causal : {true, false}) {
      CAPTURE(readers);
      check({tokens_of(37, causal), heads_of(16, readers, 0, 4)});
    }
  check({tokens_of(37, true), heads_of(5, 3, 2, 2)});  // of two groups, each in part
}

TEST_CASE("rows of several blocks, of which the last is not full") {
  check({tokens_of(150, true), heads_of(8, 1, 0, 2)});
  check({tokens_of(150, false), heads_of(8, 1, 0, 2)});
}

TEST_CASE("a window, and queries of a rank alone") {
  check({tokens_of(150, true, 20), heads_of(8, 1, 0, 1)});
  check({tokens_of(150, true, 0, 50, 71), heads_of(8, 2, 0, 2)});
  check({tokens_of(150, true, 9, 80, 70), heads_of(8, 1, 0, 1)});
}

TEST_CASE("documents, and padding that sees nothing and has zeros") {
  constexpr std::size_t length = 90;
  std::vector<TokenPlace> places(2 * length);  // rows 70 to 99 are padding
  for (const auto& [begin, end] : {std::pair{0U, 40U}, {40U, 70U}, {100U, 180U}})
    for (std::size_t row = begin; row < end; ++row) places[row] = {begin, end, row - begin};
  for (const bool causal : {true, false}) {
    Problem p{tokens_of(length, causal), heads_of(8, 1, 0, 2)};
    p.tokens.sequences = Sequences(length, places.data());
    check(p);
    const Numbers<float> ours = by_products(p);
    CHECK(std::all_of(ours.y.begin() + 70 * 16, ours.y.begin() + 100 * 16,
                      [](float y) { return y == 0; }));
  }
}

TEST_CASE("a soft cap and dropout") {
  check({tokens_of(70, true), heads_of(8, 2, 0, 2), 1.5});
  check({tokens_of(70, false), heads_of(8, 2, 0, 2), 0, 0.25});
  check({tokens_of(70, true), heads_of(8, 1, 0, 2), 1.5, 0.25});
}

TEST_CASE("a rank without rows, or without heads") {
  check({tokens_of(20, true, 0, 20, 0), heads_of(8, 1, 0, 2)});
  check({tokens_of(20, true), heads_of(8, 1, 2, 0)});
}

TEST_CASE("gradients that nobody needs are left out") {
  const Problem p{tokens_of(20, true), heads_of(8, 1, 0, 2)};
  Numbers<float> n(p);
  const Numbers<float> all = by_products(p);
  OneDnn backend;
  OneDnn::Attention<float> attention(backend);
  attention.backward(n.operands(p), n.dy.data(), n.dq.data(), nullptr, nullptr);
  CHECK(n.dq == all.dq);
  attention.backward(n.operands(p), n.dy.data(), nullptr, n.dk.data(), n.dv.data());
  CHECK(n.dk == all.dk);
  CHECK(n.dv == all.dv);
}
