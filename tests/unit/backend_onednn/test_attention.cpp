// Attention by blocks and products of oneDNN against plain loops in double.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/sequences.hpp"
#include "unit/backend/attention_problem.hpp"

using namespace shardwise;
using backend_test::attention_by_loops;
using backend_test::AttentionNumbers;
using backend_test::AttentionProblem;
using backend_test::error_of;
using backend_test::heads_of;
using backend_test::tokens_of;

namespace {

template <class T>
AttentionNumbers<T> by_products(const AttentionProblem& p) {
  AttentionNumbers<T> n(p);
  OneDnn backend;
  const auto of = n.operands(p);
  OneDnn::Attention<T> attention(backend);
  attention.forward(of, n.y.data());
  attention.backward(of, n.dy.data(), n.dq.data(), n.dk.data(), n.dv.data());
  return n;
}

/// About four times the largest error of these problems with AVX-512. In float it is 5.0e-7: sums
/// of at most 300 terms. In bf16 it is 5.3e-3: a result is rounded by up to 2^-9 of itself, and so
/// are the weights and gradients of scores in its sum.
template <class T>
constexpr double bound = std::is_same_v<T, float> ? 2e-6 : 2e-2;

template <class T>
void check_in(const AttentionProblem& p, const AttentionNumbers<double>& exact) {
  const AttentionNumbers<T> ours = by_products<T>(p);
  CAPTURE(name(dtype_v<T>));
  CHECK(error_of(ours.y, exact.y) < bound<T>);
  CHECK(error_of(ours.dq, exact.dq) < bound<T>);
  CHECK(error_of(ours.dk, exact.dk) < bound<T>);
  CHECK(error_of(ours.dv, exact.dv) < bound<T>);
}

void check(const AttentionProblem& p) {
  const AttentionNumbers<double> exact = attention_by_loops(p);
  check_in<float>(p, exact);
  check_in<bf16>(p, exact);
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

TEST_CASE("heads of one feature") {
  check({tokens_of(37, true), heads_of(1, 1, 0, 4)});
  check({tokens_of(150, false), heads_of(1, 2, 1, 3), 1.5, 0.25});
  check({tokens_of(150, true, 20), heads_of(1, 4, 0, 4)});
  check({tokens_of(70, true, 0, 69, 1), heads_of(1, 2, 0, 6)});
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

TEST_CASE("one query in each sample") {
  check({tokens_of(150, true, 0, 149, 1), heads_of(64, 4, 0, 8)});
  check({tokens_of(150, false, 0, 60, 1), heads_of(80, 1, 0, 2)});
  check({tokens_of(150, false, 0, 60, 1), heads_of(37, 2, 0, 2)});  // vectors and a rest
  check({tokens_of(150, true, 20, 149, 1), heads_of(5, 3, 2, 2), 1.5});
  check({tokens_of(70, true, 0, 69, 1), heads_of(8, 2, 0, 2), 0, 0.25});
  check({tokens_of(70, true, 0, 69, 1), heads_of(8, 1, 2, 0)});
  AttentionProblem padded{tokens_of(70, true, 0, 69, 1), heads_of(8, 1, 0, 2)};
  std::vector<Sequences::Row> places(2 * 70);  // the second sample's query is padding
  for (std::size_t row = 0; row < 70; ++row) places[row] = {0, 70, row};
  padded.tokens.sequences = Sequences(70, places.data());
  check(padded);
}

TEST_CASE("documents, and padding that sees nothing and has zeros") {
  constexpr std::size_t length = 90;
  std::vector<Sequences::Row> places(2 * length);  // rows 70 to 99 are padding
  for (const auto& [begin, end] : {std::pair{0U, 40U}, {40U, 70U}, {100U, 180U}})
    for (std::size_t row = begin; row < end; ++row) places[row] = {begin, end, row - begin};
  for (const bool causal : {true, false}) {
    AttentionProblem p{tokens_of(length, causal), heads_of(8, 1, 0, 2)};
    p.tokens.sequences = Sequences(length, places.data());
    check(p);
    const AttentionNumbers<float> ours = by_products<float>(p);
    CHECK(std::all_of(ours.y.begin() + 70 * 16, ours.y.begin() + 100 * 16,
                      [](float y) { return y == 0; }));
  }
}

/// The last token of each of two samples is seen by its own row alone.
template <class T>
void check_that_last_is_masked(std::size_t length) {
  const AttentionProblem p{tokens_of(length, true), heads_of(8, 1, 0, 1)};
  const auto by_last = [&](T number) {
    AttentionNumbers<T> n(p);
    for (const std::size_t row : {length - 1, 2 * length - 1})
      std::fill_n(n.v.begin() + static_cast<std::ptrdiff_t>(row * 8), 8, number);
    OneDnn backend;
    OneDnn::Attention<T> attention(backend);
    attention.forward(n.operands(p), n.y.data());
    attention.backward(n.operands(p), n.dy.data(), n.dq.data(), n.dk.data(), n.dv.data());
    return n;
  };
  const AttentionNumbers<T> small = by_last(T(1)), large = by_last(T(1e38F));
  for (std::size_t row = 0; row < 2 * length; ++row) {
    if (row % length == length - 1) continue;
    const auto same = [&](const std::vector<T>& a, const std::vector<T>& b) {
      const auto begin = static_cast<std::ptrdiff_t>(row * 8);
      return std::equal(a.begin() + begin, a.begin() + begin + 8, b.begin() + begin);
    };
    CHECK(same(small.y, large.y));
    CHECK(same(small.dq, large.dq));
  }
}

TEST_CASE("a masked weight is exactly 0, and not the least exponential") {
  for (const std::size_t length : {37U, 150U}) {
    check_that_last_is_masked<float>(length);
    check_that_last_is_masked<bf16>(length);
  }
}

TEST_CASE("a soft cap and dropout") {
  check({tokens_of(70, true), heads_of(8, 2, 0, 2), 1.5});
  check({tokens_of(70, false), heads_of(8, 2, 0, 2), 0, 0.25});
  check({tokens_of(70, true), heads_of(8, 1, 0, 2), 1.5, 0.25});
  check({tokens_of(150, true, 20), heads_of(8, 1, 0, 1), 1.5, 0.25});  // blocks of later keys
}

TEST_CASE("a rank without rows, or without heads") {
  check({tokens_of(20, true, 0, 20, 0), heads_of(8, 1, 0, 2)});
  check({tokens_of(20, true), heads_of(8, 1, 2, 0)});
  AttentionProblem nothing{tokens_of(20, true), heads_of(8, 1, 0, 2)};
  nothing.tokens.queries.samples = nothing.tokens.keys.samples = 0;
  check(nothing);
}

TEST_CASE_TEMPLATE("gradients that nobody needs are left out", T, float, bf16) {
  const AttentionProblem p{tokens_of(20, true), heads_of(8, 1, 0, 2)};
  AttentionNumbers<T> n(p);
  const AttentionNumbers<T> all = by_products<T>(p);
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
  const AttentionProblem p{tokens_of(2, false), heads_of(size, 1, 0, 1)};
  AttentionNumbers<bf16> n(p);
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
  const AttentionProblem p{tokens, heads_of(2, readers, 0, readers)};
  AttentionNumbers<bf16> n(p);
  std::fill(n.q.begin(), n.q.end(), bf16(0.0F));  // so all weights are a tenth
  std::fill(n.dy.begin(), n.dy.end(), bf16(1.0F));
  OneDnn backend;
  OneDnn::Attention<bf16>(backend).backward(n.operands(p), n.dy.data(), n.dq.data(), n.dk.data(),
                                            n.dv.data());
  for (const bf16 dv : n.dv) CHECK(std::abs(dv - 1024) <= 1024.0F / 128);
}
