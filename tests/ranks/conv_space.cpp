// Convolutions split along space: each rank makes a block of the outputs from the rows that they
// read, in one, two and three axes.

#include "ranks/conv_cases.hpp"

using namespace shardwise;
using testing::check_convolutions;
using testing::ConvolutionCase;
using testing::Counted;
using testing::Data;

namespace {

template <Axis A>
using Along = Ends<Sharded<A>, Sharded<A>>;

constexpr Kernel strided = kernel({3, 2}, {.stride = {2, 1}, .padding = 1});
// Reaches over several ranks' rows, pads beyond its own reach on one side, and in groups.
constexpr Kernel far_reaching =
    kernel({5, 3}, {.padding = sides({8, 1}, {11, 0}), .dilation = {2, 1}, .groups = 2});
constexpr Kernel skips = kernel(2, {.stride = 3, .bias = false});  // rows that nobody reads
constexpr Kernel of_body = kernel({2, 3, 1}, {.padding = same, .dilation = {1, 2, 1}});

std::vector<ConvolutionCase> integers(std::size_t rows, std::size_t columns) {
  using enum Axis;
  const Dim tall{height, rows}, wide{width, columns};
  return {
      {"several images", {{batch, 2}, {channel, 4}, tall, wide}, 6},
      {"no image", {{batch, 0}, {channel, 2}, tall, wide}, 2},
  };
}

/// In double, reals too.
std::vector<ConvolutionCase> pictures(std::size_t rows, std::size_t columns) {
  using enum Axis;
  std::vector<ConvolutionCase> cases = integers(rows, columns);
  const Dim tall{height, rows}, wide{width, columns};
  cases.push_back({"reals", {{batch, 2}, {channel, 4}, tall, wide}, 6, Data::reals});
  return cases;
}

}  // namespace

TEST_CASE("by rows") {
  for (const std::size_t rows : {29U, 8U, 3U, 1U}) {
    CAPTURE(rows);
    check_convolutions<double, Counted, Conv2d<split::height, dynamic, dynamic, strided>,
                       Along<Axis::height>>(pictures(rows, 3));
  }
}

TEST_CASE("by rows, of images that every rank has") {
  check_convolutions<double, Counted, Conv2d<split::height, dynamic, dynamic, strided>>(
      pictures(11, 3));
}

TEST_CASE("by rows with kernels of one tap, of summands that ranks add up on the way there") {
  check_convolutions<double, Counted, Conv2d<split::height, dynamic, dynamic, kernel(1)>,
                     Ends<Partial, Sharded<Axis::height>>>(integers(7, 3));
}

TEST_CASE("a window over several ranks' rows, and more padding than it reaches") {
  for (const std::size_t rows : {12U, 2U}) {
    CAPTURE(rows);
    check_convolutions<double, Counted, Conv2d<split::height, dynamic, dynamic, far_reaching>,
                       Along<Axis::height>>(pictures(rows, 3));
  }
}

TEST_CASE("by columns, some of which nobody reads") {
  check_convolutions<double, Counted, Conv2d<split::width, dynamic, dynamic, skips>,
                     Along<Axis::width>>(pictures(3, 13));
}

TEST_CASE("the only axis of space, and the first of three") {
  using enum Axis;
  const std::vector<ConvolutionCase> texts{
      {"uneven", {{batch, 3}, {channel, 4}, {width, 11}}, 5},
  };
  check_convolutions<double, Counted, Conv1d<split::width, dynamic, dynamic, skips>,
                     Along<Axis::width>>(texts);
  const std::vector<ConvolutionCase> bodies{
      {"uneven", {{batch, 2}, {channel, 3}, {depth, 5}, {height, 4}, {width, 2}}, 2},
  };
  check_convolutions<double, Counted, Conv3d<split::depth, dynamic, dynamic, of_body>,
                     Along<Axis::depth>>(bodies);
}

TEST_CASE("float and bfloat16") {
  check_convolutions<float, testing::Ranks, Conv2d<split::height, dynamic, dynamic, strided>,
                     Along<Axis::height>>(integers(7, 2));
  check_convolutions<bf16, testing::Ranks, Conv2d<split::height, dynamic, dynamic, skips>,
                     Along<Axis::height>>(integers(7, 2));
}
