// Convolutions in two axes split by output channel, by input channel, by batch and not at all.

#include "ranks/conv_cases.hpp"

using namespace shardwise;
using testing::BatchOfImages;
using testing::check_convolutions;
using testing::Counted;
using testing::Images;
using testing::pictures;

namespace {

constexpr Kernel padded = kernel(3, {.padding = 1});

template <class S>
using Padded = Conv2d<S, dynamic, dynamic, padded>;

}  // namespace

TEST_CASE("images that every rank has") {
  SUBCASE("not split") { check_convolutions<double, Counted, Padded<split::none>>(pictures()); }
  SUBCASE("by output") { check_convolutions<double, Counted, Padded<split::output>>(pictures()); }
  SUBCASE("by input") { check_convolutions<double, Counted, Padded<split::input>>(pictures()); }
}

TEST_CASE("a batch over ranks: gradients of weights are summed once") {
  SUBCASE("not split") {
    check_convolutions<double, Counted, Padded<split::none>, BatchOfImages>(pictures());
  }
  SUBCASE("by output") {
    check_convolutions<double, Counted, Padded<split::output>, BatchOfImages>(pictures());
  }
  SUBCASE("by input") {
    check_convolutions<double, Counted, Padded<split::input>, BatchOfImages>(pictures());
  }
}

TEST_CASE("without the gradient of the input") {
  check_convolutions<double, Counted, Padded<split::output>, Images, Train>(pictures());
}
