// Attention by blocks and products of oneDNN against plain loops in double.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/backend/attention.hpp"
#include "shardwise/backend/detail/attention_loops.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/core/dtype.hpp"
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

/// The operands and results of a problem in T. The operands are numbers of `Tensor`.
template <class T, class Tensor = T>
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
        static_cast<accumulate_t<T>>(1 / std::sqrt(static_cast<double>(p.heads.size))),
        static_cast<accumulate_t<T>>(p.soft_cap),
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
  /// The same in every T.
  static std::vector<T> made(std::size_t count, std::uint64_t tensor) {
    const RandomStream random(Seed{1}, 0, 0, tensor);
    std::vector<T> numbers(count);
    for (std::size_t i = 0; i < count; ++i)
      numbers[i] = static_cast<T>(static_cast<Tensor>(4 * random.uniform(i) - 2.0F));
    return numbers;
  }
};

template <class T>
Numbers<double, T> by_loops(const Problem& p) {
  Numbers<double, T> n(p);
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

template <class T>
Numbers<T> by_products(const Problem& p) {
  Numbers<T> n(p);
  OneDnn backend;
  const auto of = n.operands(p);
  OneDnn::Attention<T> attention(backend);
  attention.forward(of, n.y.data());
  attention.backward(of, n.dy.data(), n.dq.data(), n.dk.data(), n.dv.data());
  return n;
}

/// The largest difference, over the largest number.
template <class T>
double error_of(const std::vector<T>& ours, const std::vector<double>& exact) {
  double largest = 1e-30, difference = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    largest = std::max(largest, std::abs(exact[i]));
    const double here = std::abs(static_cast<double>(static_cast<float>(ours[i])) - exact[i]);
    difference = here <= difference ? difference : here;  // keeps NaN
  }
  return difference / largest;
}

/// About four times the largest error of these problems with AVX-512. In float it is 6.0e-7: sums
/// of at most 300 terms. In bf16 it is 5.3e-3: a result is rounded by up to 2^-9 of itself, and so
/// are the weights and gradients of scores in its sum.
template <class T>
constexpr double bound = std::is_same_v<T, float> ? 2e-6 : 2e-2;

template <class T>
void check_in(const Problem& p) {
  const Numbers<double, T> exact = by_loops<T>(p);
  const Numbers<T> ours = by_products<T>(p);
  CAPTURE(name(dtype_v<T>));
  CHECK(error_of(ours.y, exact.y) < bound<T>);
  CHECK(error_of(ours.dq, exact.dq) < bound<T>);
  CHECK(error_of(ours.dk, exact.dk) < bound<T>);
  CHECK(error_of(ours.dv, exact.dv) < bound<T>);
}

void check(const Problem& p) {
  check_in<float>(p);
  check_in<bf16>(p);
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
    const Numbers<float> ours = by_products<float>(p);
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

TEST_CASE_TEMPLATE("gradients that nobody needs are left out", T, float, bf16) {
  const Problem p{tokens_of(20, true), heads_of(8, 1, 0, 2)};
  Numbers<T> n(p);
  const Numbers<T> all = by_products<T>(p);
  OneDnn backend;
  OneDnn::Attention<T> attention(backend);
  attention.backward(n.operands(p), n.dy.data(), n.dq.data(), nullptr, nullptr);
  CHECK(n.dq == all.dq);
  attention.backward(n.operands(p), n.dy.data(), nullptr, n.dk.data(), n.dv.data());
  CHECK(n.dk == all.dk);
  CHECK(n.dv == all.dv);
}

// Scores 64 and 64.25, which are the same number in bf16.
TEST_CASE("scores of bf16 are not rounded before their softmax") {
  constexpr std::size_t size = 16;  // of a head, so the scale is 1 / 4
  const Problem p{tokens_of(2, false), heads_of(size, 1, 0, 1)};
  Numbers<bf16> n(p);
  for (std::size_t row = 0; row < 4; ++row)
    for (std::size_t d = 0; d < size; ++d) {
      const std::size_t i = row * size + d;
      const bool second = row % 2 == 1;
      n.q[i] = bf16(d == 0 ? 16.0F : d == 1 ? 1.0F : 0.0F);
      n.k[i] = bf16(d == 0 ? 16.0F : d == 1 && second ? 1.0F : 0.0F);
      n.v[i] = bf16(second ? 1.0F : 0.0F);
    }
  OneDnn backend;
  OneDnn::Attention<bf16>(backend).forward(n.operands(p), n.y.data());
  for (const bf16 y : n.y) CHECK(std::abs(y - 1 / (1 + std::exp(-0.25F))) < 1.0F / 256);
}

// 80 summands of 12.8, of 10 blocks of queries for each of 8 heads: where the sum is above 512, a
// bf16 cannot tell 12.8 from 12.
TEST_CASE("gradients of bf16 are rounded after the last of many blocks") {
  constexpr std::size_t length = 1280, keys = 10, readers = 8;
  const AttentionTokens tokens{
      {1, length, length, 0, 0}, {1, keys, length, 0, 0}, Sequences(length), false, 0};
  const Problem p{tokens, heads_of(2, readers, 0, readers)};
  Numbers<bf16> n(p);
  std::fill(n.q.begin(), n.q.end(), bf16(0.0F));  // so all weights are a tenth
  std::fill(n.dy.begin(), n.dy.end(), bf16(1.0F));
  OneDnn backend;
  OneDnn::Attention<bf16>(backend).backward(n.operands(p), n.dy.data(), n.dq.data(), n.dk.data(),
                                            n.dv.data());
  for (const bf16 dv : n.dv) CHECK(std::abs(dv - 1024) <= 1024.0F / 128);
}
