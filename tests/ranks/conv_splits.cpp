// Convolutions in two axes split by output channel, by input channel, by batch and not at all.

#include "ranks/conv_cases.hpp"
#include "ranks/layer_on_ranks.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/transposed_convolution.hpp"
#include "shardwise/model/sequential.hpp"

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

TEST_CASE("transposed convolutions, and a ReLU that they apply") {
  using enum Axis;
  static constexpr Kernel larger = kernel(3, {.stride = 2, .padding = 1, .output_padding = 1});
  const Shape even{{batch, 3}, {channel, 8}, {height, 3}, {width, 2}};
  const Shape few{{batch, 2}, {channel, 3}, {height, 2}, {width, 3}};
  const Shape none{{batch, 0}, {channel, 3}, {height, 2}, {width, 2}};
  SUBCASE("by output and then by input") {
    using Both = Sequential<ConvTranspose2d<split::output, dynamic, 5, larger>, Relu,
                            ConvTranspose2d<split::input, 5, 3, kernel(2, {.stride = 2})>>;
    for (const Shape& shape : {even, few, none}) {
      const Both layers(ConvTranspose2d<split::output, dynamic, 5, larger>(shape[1].extent()), {},
                        {});
      testing::check_on_ranks(layers, shape, testing::bit_by_bit);
    }
  }
  SUBCASE("by group") {
    testing::check_on_ranks<Sharded<channel>>(
        ConvTranspose2d<split::group, 6, 9, kernel(2, {.stride = 2, .groups = 3})>{},
        {{batch, 2}, {channel, 3, 2}, {height, 3}, {width, 2}}, testing::bit_by_bit);
  }
  SUBCASE("along space, with a gap between taps, and a convolution behind it") {
    using First = ConvTranspose2d<split::height, dynamic, 5, larger>;
    using Along =
        Sequential<First, Relu, ConvTranspose2d<split::height, 5, 4, kernel(2, {.stride = 3})>,
                   Conv2d<split::height, 4, 2, padded>>;
    for (const Shape& shape : {even, few, none})
      testing::check_on_ranks(Along(First(shape[1].extent()), {}, {}, {}), shape,
                              testing::bit_by_bit);
    testing::check_on_ranks<Sharded<width>>(
        ConvTranspose2d<split::width, 8, 4, kernel(4, {.stride = 2, .padding = 1, .groups = 2})>{},
        even, testing::bit_by_bit);
  }
  SUBCASE("by batch") {
    testing::check_on_ranks<Sharded<batch>>(ConvTranspose2d<split::none, 8, 5, larger>{}, even,
                                            testing::bit_by_bit);
  }
}

TEST_CASE("without the gradient of the input") {
  check_convolutions<double, Counted, Padded<split::output>, Images, Train>(pictures());
}
