// Rows are combined on a device as on the host, whatever their number and length.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "shardwise/core/memory.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/detail/channels.hpp"
#include "support/far.hpp"

using namespace shardwise;
using testing::Far;

namespace {

constexpr std::size_t lengths[] = {0, 1, 15, 32, 33, 128, 1000, 8192, 8193, 100003};
constexpr std::size_t row_counts[] = {0, 1, 7, 65, 300};
constexpr std::size_t most = 400'000;  // numbers

/// Where number i of row r is.
struct Places {
  std::size_t of_row;
  std::size_t of_term;

  constexpr Places(std::size_t rows, std::size_t n, Adjacent adjacent)
      : of_row(adjacent == Adjacent::terms ? n : 1),
        of_term(adjacent == Adjacent::terms ? 1 : rows) {}
  constexpr std::size_t operator()(std::size_t r, std::size_t i) const {
    return r * of_row + i * of_term;
  }
};

struct RowTerm {
  const float* first;
  std::size_t step;
  constexpr float operator()(std::size_t i) const { return first[i * step]; }
};

struct RowTerms {
  const float* numbers;
  Places at;
  constexpr RowTerm operator()(std::size_t r) const { return {numbers + at(r, 0), at.of_term}; }
};

/// A number and 1.
struct CountedTerm {
  RowTerm term;
  constexpr detail::TwoSums operator()(std::size_t i) const {
    return {static_cast<double>(term(i)), 1};
  }
};

struct CountedTerms {
  RowTerms terms;
  constexpr CountedTerm operator()(std::size_t r) const { return {terms(r)}; }
};

/// Numbers and results of rows where the backend's lie.
class Device {
 public:
  static constexpr double poison = 1e300;

  const float* numbers(const std::vector<float>& values) {
    backend.to_device(values.data(), values.size(), numbers_);
    return numbers_;
  }
  /// For count of them, and one that nobody is to write.
  double* results(std::size_t count) {
    const std::vector<double> poisoned(count + 1, poison);
    backend.to_device(poisoned.data(), count + 1, results_);
    return results_;
  }
  std::vector<double> found(std::size_t count) {
    std::vector<double> values(count + 1);
    backend.to_host(results_, count + 1, values.data());
    CHECK(values.back() == poison);
    values.pop_back();
    return values;
  }

  Far backend;

 private:
  Pool pool_{backend.memory()};
  Buffer first_ = pool_.take((most + 1) * sizeof(float));
  Buffer second_ = pool_.take(1024 * sizeof(double));
  float* numbers_ = static_cast<float*>(first_.data());
  double* results_ = static_cast<double*>(second_.data());
};

/// check(rows, n, adjacent, integers of -8 ... 8)
template <class Check>
void for_each_size(Check check) {
  for (const Adjacent adjacent : {Adjacent::terms, Adjacent::rows}) {
    for (const std::size_t n : lengths) {
      for (const std::size_t rows : row_counts) {
        if (rows * n > most) continue;
        CAPTURE(static_cast<int>(adjacent));
        CAPTURE(n);
        CAPTURE(rows);
        const RandomStream stream(Seed{11}, n, rows);
        std::vector<float> numbers(rows * n + 1);
        for (std::size_t i = 0; i < numbers.size(); ++i)
          numbers[i] = static_cast<float>(stream.bits(i) % 17) - 8;
        check(rows, n, adjacent, numbers);
      }
    }
  }
}

}  // namespace

TEST_CASE("two sums of each row") {
  Device device;
  for_each_size([&](std::size_t rows, std::size_t n, Adjacent adjacent, const auto& numbers) {
    const Places at(rows, n, adjacent);
    const float* const there = device.numbers(numbers);
    double* const sums = device.results(2 * rows);
    device.backend.reduce_each(rows, n, adjacent, detail::TwoSums{}, CountedTerms{{there, at}},
                               detail::Plus{}, detail::PutChannelSums{rows, sums});
    std::vector<double> expected(2 * rows);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t i = 0; i < n; ++i) expected[r] += static_cast<double>(numbers[at(r, i)]);
      expected[rows + r] = static_cast<double>(n);
    }
    CHECK(device.found(2 * rows) == expected);
  });
}

TEST_CASE("the largest of each row, and a NaN in the last one") {
  Device device;
  for_each_size([&](std::size_t rows, std::size_t n, Adjacent adjacent, auto numbers) {
    if (rows == 0 || n == 0) return;
    const Places at(rows, n, adjacent);
    std::vector<double> expected(rows, -INFINITY);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t i = 0; i < n; ++i)
        expected[r] = std::fmax(expected[r], static_cast<double>(numbers[at(r, i)]));
    numbers[at(rows - 1, n / 2)] = NAN;
    const float* const there = device.numbers(numbers);
    double* const largest = device.results(rows);
    device.backend.reduce_each(rows, n, adjacent, static_cast<double>(-INFINITY),
                               RowTerms{there, at}, detail::Largest{},
                               detail::PutInto<double>{largest});
    std::vector<double> found = device.found(rows);
    CHECK(std::isnan(found.back()));
    found.back() = expected.back();
    CHECK(found == expected);
  });
}

TEST_CASE("one long row as a number of the host") {
  Device device;
  Pool pool(device.backend.memory());
  for_each_size([&](std::size_t rows, std::size_t n, Adjacent, const auto& numbers) {
    const RowTerm term{device.numbers(numbers), 1};
    double expected = 0;
    for (std::size_t i = 0; i < rows * n; ++i) expected += static_cast<double>(numbers[i]);
    CHECK(detail::reduced(device.backend, pool, rows * n, 0.0, term, detail::Plus{}) == expected);
  });
}
