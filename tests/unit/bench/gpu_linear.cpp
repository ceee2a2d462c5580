// What benchmarks of linear layers on a GPU do besides calling it: their numbers, and whether a
// product is right at places drawn at random. On memory that the host cannot touch.

#include <doctest/doctest.h>

#include <limits>
#include <stdexcept>

#include "gpu/linear_model.hpp"
#include "support/far.hpp"

using namespace shardwise;
using testing::Far;

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
