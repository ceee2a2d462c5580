// What benchmarks of linear layers on a GPU do besides calling it: their numbers, and whether a
// product is right at places drawn at random. On memory that the host cannot touch.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "gpu/linear_model.hpp"
#include "support/far.hpp"

using namespace shardwise;
using testing::Far;

TEST_CASE("numbers are in [-1, 1), spread over it, and differ between tensors") {
  double sum = 0, squares = 0;
  int equal = 0;
  constexpr std::size_t count = 100000;
  for (std::size_t i = 0; i < count; ++i) {
    const double number = static_cast<double>(bench::uniform(1, i));
    REQUIRE(number >= -1);
    REQUIRE(number < 1);
    sum += number;
    squares += number * number;
    if (bench::uniform(2, i) == bench::uniform(1, i)) ++equal;
  }
  CHECK(std::abs(sum / count) < 0.01);
  CHECK(std::abs(squares / count - 1.0 / 3) < 0.01);
  CHECK(equal < 3);
}

TEST_CASE("numbers are those that gpu_torch_peer.py makes") {
  CHECK(bench::mixed(0) == 0);
  CHECK(bench::mixed(1) == 179721900U);
  CHECK(bench::mixed(0xFFFFFFFFU) == 3419906276U);
  CHECK(bench::uniform(3, 12345) == -0.12336409091949463F);
}

TEST_CASE_TEMPLATE("the results of both models are right", T, float, bf16, fp16) {
  Far far;
  const auto check = [&](auto& model) { model.require_right(true, 0); };
  bench::LinearModel<bench::Expand, Far, T> expand(far, {13, 40, 72});
  check(expand);
  bench::LinearModel<bench::Contract, Far, T> contract(far, {13, 72, 40});
  check(contract);
}

TEST_CASE("a wrong result is found in whichever product it is") {
  Far far;
  using Model = bench::LinearModel<bench::Expand, Far, float>;
  Model model(far, {5, 16, 24});
  int found = 0;
  model.each_result(true, [&](const char* name, bench::SampledProduct<float> product) {
    auto samples = bench::samples_of(far, product);
    CHECK_NOTHROW(bench::require_right<float>(name, samples, product.terms));
    for (const float wrong : {1.0F, std::numeric_limits<float>::quiet_NaN()}) {
      auto changed = samples;
      changed[1].got += static_cast<double>(wrong);
      CHECK_THROWS_AS(bench::require_right<float>(name, changed, product.terms),
                      std::runtime_error);
    }
    const auto of_other = [&](auto change) {
      auto other = product;
      change(other);
      CHECK_THROWS_AS(
          bench::require_right<float>(name, bench::samples_of(far, other), product.terms),
          std::runtime_error);
    };
    if (product.open != nullptr) of_other([](auto& p) { p.open = nullptr; });
    if (product.bias != nullptr) of_other([](auto& p) { p.bias = nullptr; });
    if (product.relu) of_other([](auto& p) { p.relu = false; });
    of_other([](auto& p) { --p.terms; });
    ++found;
  });
  CHECK(found == 4);
}

TEST_CASE("what a recording computes is looked at, and not what was there before") {
  Far far;
  using Model = bench::LinearModel<bench::Expand, Far, float>;
  Model model(far, {5, 16, 24});
  model.require_right(true, 0);
  const auto required = bench::required(far, "recorded, ", 0);
  const auto nothing = [] {};

  Far::Recording forward(far, [&] { model.forward(); });
  CHECK_NOTHROW(model.result_of_forward([&] { forward.launch(); }, required));
  CHECK_THROWS_WITH_AS(model.result_of_forward(nothing, required),
                       doctest::Contains("recorded, y: element"), std::runtime_error);

  Far::Recording training(far, [&] { model.train(); });
  CHECK_NOTHROW(model.results_of_training([&] { training.launch(); }, required));
  CHECK_THROWS_AS(model.results_of_training(nothing, required), std::runtime_error);
}

TEST_CASE("samples are the first, the last, and others of large products too") {
  const std::size_t size = 49152UL * 12288UL;
  CHECK(bench::sampled_place(0, size) == 0);
  CHECK(bench::sampled_place(1, size) == size - 1);
  std::size_t largest = 0;
  for (std::size_t s = 2; s < 256; ++s) {
    CHECK(bench::sampled_place(s, size) < size);
    largest = std::max(largest, bench::sampled_place(s, size));
  }
  CHECK(largest > size / 2);
}

TEST_CASE("what a place may differ by is less than a bias, for the largest sums") {
  CHECK(bench::allowed<float>(49152, 70) < 0.1);
  CHECK(bench::allowed<bf16>(49152, 70) < 1);
  CHECK(bench::allowed<fp16>(49152, 70) < 1);
}

namespace {

/// The only element of 2 x 3 + 1, with everything that a product may have.
template <class T>
constexpr bench::Sample only_of() {
  T a{}, b{}, bias{}, result{};
  bench::Uniform<T>{&a, 1}(0);
  a = static_cast<T>(2.0F), b = static_cast<T>(3.0F), bias = static_cast<T>(1.0F);
  result = static_cast<T>(7.0F);
  bench::Sample sample{};
  bench::TakeSample<T>{{1, 1, 1, {&a, 1, 1}, {&b, 1, 1}, &a, &bias, true, &result}, &sample}(0);
  return sample;
}

}  // namespace

TEST_CASE_TEMPLATE(
    "numbers and samples are constant expressions, which nvcc compiles for the device", T, float,
    bf16, fp16) {
  constexpr bench::Sample sample = only_of<T>();
  CHECK(sample.exact == 7);
  CHECK(sample.got == 7);
}
