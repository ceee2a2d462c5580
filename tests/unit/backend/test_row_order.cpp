// The order in which blocks of a device combine rows, played on the host with the functions that
// the kernel calls.

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "shardwise/backend/detail/row_order.hpp"
#include "shardwise/core/philox.hpp"

using namespace shardwise;
using detail::RowOrder;

namespace {

constexpr unsigned threads = RowOrder::threads;

/// What all threads do when lanes meet. They run in any order, which must not matter.
template <class A, class Combine, class IsHere>
void play_meeting(std::array<A, threads>& results, const RowOrder& order, unsigned half,
                  const Combine& combine, const IsHere& is_here) {
  std::array<A, threads> other_way = results;
  for (unsigned t = 0; t < threads; ++t)
    if (is_here(t)) order.meet(results.data(), t, half, combine);
  for (unsigned t = threads; t-- > 0;)
    if (is_here(t)) order.meet(other_way.data(), t, half, combine);
  if (std::memcmp(results.data(), other_way.data(), sizeof results) != 0)
    FAIL_CHECK("a thread reads what another one writes");
}

/// One round: what the threads of one block after the other do.
template <class A, class Terms, class Combine, class Put>
void play_round(std::size_t rows, const RowOrder& order, A first, const Terms& terms,
                const Combine& combine, const Put& put) {
  for (std::size_t begin = 0; begin < rows; begin += order.rows_of_block()) {
    const auto is_here = [&](unsigned t) { return begin + order.row_of(t) < rows; };
    for (unsigned part = 0; part < order.parts(); ++part) {
      std::array<A, threads> results{};
      for (unsigned t = 0; t < threads; ++t) {
        if (!is_here(t)) continue;
        const auto term = terms(begin + order.row_of(t));
        results[t] = order.of_lane(part, order.lane_of(t), first, term, combine);
      }
      for (unsigned half = order.lanes() / 2; half > 0; half /= 2)
        play_meeting(results, order, half, combine, is_here);
      for (unsigned t = 0; t < threads; ++t) {
        if (is_here(t) && order.lane_of(t) == 0)
          put((begin + order.row_of(t)) * order.parts() + part, results[t]);
      }
    }
  }
}

/// The result of every row.
template <class A, class Terms, class Combine>
std::vector<A> play(std::size_t rows, std::size_t n, Adjacent adjacent, A first, const Terms& terms,
                    const Combine& combine) {
  const RowOrder order(n, adjacent);
  std::vector<A> parts(rows * order.parts());
  play_round(rows, order, first, terms, combine, [&](std::size_t i, A a) { parts[i] = a; });
  const RowOrder second(order.parts(), Adjacent::terms);
  CHECK(second.parts() == 1);
  std::vector<A> results(rows);
  play_round(rows, second, first, detail::PartsOfRow<A>{parts.data(), order.parts()}, combine,
             [&](std::size_t r, A a) { results[r] = a; });
  return results;
}

constexpr std::size_t lengths[] = {0,   1,    2,    15,   31,   32,   33,     127,   128,
                                   129, 1000, 4096, 8191, 8192, 8193, 100003, 600000};

constexpr std::size_t row_counts[] = {0, 1, 7, 33, 300};

template <class Check>
void for_each_size(Check check) {
  for (const Adjacent adjacent : {Adjacent::terms, Adjacent::rows}) {
    for (const std::size_t n : lengths) {
      for (const std::size_t rows : row_counts) {
        if (rows * n > 4'000'000) continue;
        CAPTURE(static_cast<int>(adjacent));
        CAPTURE(n);
        CAPTURE(rows);
        check(rows, n, adjacent);
      }
    }
  }
}

/// Sums of floats in [-2, 2).
std::vector<float> sums(std::size_t rows, std::size_t n, Adjacent adjacent,
                        const std::vector<float>& numbers) {
  return play(
      rows, n, adjacent, 0.F,
      [&](std::size_t r) {
        return [row = numbers.data() + r * n](std::size_t i) { return row[i]; };
      },
      detail::Plus{});
}

std::vector<float> numbers_for(std::size_t count) {
  std::vector<float> numbers(count);
  RandomStream(Seed{3}, 1, 0).for_each_uniform(0, count, [&](std::uint64_t i, float u) {
    numbers[i] = 4 * u - 2;
  });
  return numbers;
}

}  // namespace

TEST_CASE("each term of each row is asked for once, and meets the others of its row") {
  for_each_size([](std::size_t rows, std::size_t n, Adjacent adjacent) {
    std::vector<std::uint8_t> asked(rows * n);
    const auto found = play(
        rows, n, adjacent, std::uint64_t{0},
        [&](std::size_t r) {
          return [&, r](std::size_t i) {
            ++asked[r * n + i];
            return r * n + i;
          };
        },
        detail::Plus{});
    bool once = true;
    for (const std::uint8_t times : asked) once &= times == 1;
    CHECK(once);
    bool whole = found.size() == rows;
    for (std::size_t r = 0; r < rows; ++r)
      whole &= n == 0 ? found[r] == 0 : found[r] == n * r * n + n * (n - 1) / 2;
    CHECK(whole);
  });
}

TEST_CASE("no thread has another's place") {
  for (const Adjacent adjacent : {Adjacent::terms, Adjacent::rows}) {
    for (const std::size_t n : lengths) {
      const RowOrder order(n, adjacent);
      std::array<int, threads> taken{};
      for (unsigned t = 0; t < threads; ++t)
        ++taken[order.row_of(t) * order.lanes() + order.lane_of(t)];
      for (const int times : taken) CHECK(times == 1);
    }
  }
}

TEST_CASE("neighbouring threads read what is adjacent") {
  const RowOrder along(4096, Adjacent::terms);
  const RowOrder across(4096, Adjacent::rows);
  for (unsigned t = 1; t < 32; ++t) {
    CHECK(along.lane_of(t) == along.lane_of(t - 1) + 1);
    CHECK(along.row_of(t) == along.row_of(t - 1));
    CHECK(across.row_of(t) == across.row_of(t - 1) + 1);
    CHECK(across.lane_of(t) == across.lane_of(t - 1));
  }
}

TEST_CASE("the bits of a row do not depend on the other rows") {
  for_each_size([](std::size_t rows, std::size_t n, Adjacent adjacent) {
    const std::vector<float> numbers = numbers_for(rows * n);
    const std::vector<float> all = sums(rows, n, adjacent, numbers);
    bool same = true;
    for (std::size_t r = 0; r < rows; r += 6) {
      const std::vector<float> row(numbers.begin() + static_cast<std::ptrdiff_t>(r * n),
                                   numbers.begin() + static_cast<std::ptrdiff_t>((r + 1) * n));
      same &= sums(1, n, adjacent, row)[0] == all[r];
    }
    CHECK(same);
  });
}

TEST_CASE("sums are close to those in double") {
  for_each_size([](std::size_t rows, std::size_t n, Adjacent adjacent) {
    const std::vector<float> numbers = numbers_for(rows * n);
    const std::vector<float> found = sums(rows, n, adjacent, numbers);
    for (std::size_t r = 0; r < rows; ++r) {
      double exact = 0;
      double magnitude = 0;
      for (std::size_t i = 0; i < n; ++i) {
        exact += static_cast<double>(numbers[r * n + i]);
        magnitude += std::abs(static_cast<double>(numbers[r * n + i]));
      }
      // A term passes at most 32 additions of its lane and 8 of halves, and as many again in the
      // second round.
      CHECK(std::abs(static_cast<double>(found[r]) - exact) <= 80 * 0x1p-24 * magnitude);
    }
  });
}

TEST_CASE("a largest number that is none stays, wherever it is") {
  for_each_size([](std::size_t rows, std::size_t n, Adjacent adjacent) {
    if (n == 0 || rows == 0) return;
    for (const std::size_t place : {std::size_t{0}, n / 2, n - 1}) {
      std::vector<float> numbers(rows * n, 1.F);
      numbers[(rows - 1) * n + place] = std::nanf("");
      const auto found = play(
          rows, n, adjacent, -INFINITY,
          [&](std::size_t r) {
            return [row = numbers.data() + r * n](std::size_t i) { return row[i]; };
          },
          detail::Largest{});
      CHECK(std::isnan(found.back()));
      CHECK((rows == 1 || found.front() == 1.F));
    }
  });
}
