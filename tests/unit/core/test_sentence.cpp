// Sentences are put together of words and values.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "shardwise/core/error.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/core/shape.hpp"

using namespace shardwise;
using detail::sentence;

namespace {

enum class Color { red };
enum Code { failed };  // as those of CUDA and of NCCL

template <class T>
concept SaysSo = detail::Sayable<T>;

static_assert(SaysSo<int> && SaysSo<double> && SaysSo<std::string_view> && SaysSo<Shape>);
static_assert(!SaysSo<char>);   // would be a number
static_assert(!SaysSo<Color>);  // has no words
static_assert(!SaysSo<Code>);
static_assert(!SaysSo<error>);  // so {e} copies an error

}  // namespace

TEST_CASE("words and values stand one behind the other") {
  const std::string name = "weight";
  CHECK(sentence({}).empty());
  CHECK(sentence({"rank ", 2, " of ", std::size_t{4}}) == "rank 2 of 4");
  CHECK(sentence({name, " ", std::string_view(name).substr(0, 2)}) == "weight we");
  CHECK(sentence({std::int8_t{-3}, " ", ~std::uint64_t{0}}) == "-3 18446744073709551615");
  CHECK(sentence({0.5, " ", -0.1F, " ", 1e-8, " ", 2e-8}) == "0.5 -0.1 1e-08 2e-08");
  CHECK(sentence({0.0, " ", 100000.0, " ", 1e20}) == "0 100000 1e+20");
  CHECK(sentence({1e-4, " ", -9e14, " ", 1e15}) == "0.0001 -900000000000000 1e+15");
}

TEST_CASE("what has a to_string speaks for itself") {
  const Shape shape{{Axis::batch, dynamic}, {Axis::feature, 32, 49}};
  CHECK(sentence({"a tensor ", shape}) == "a tensor [batch ?, feature 32*49]");
}

TEST_CASE("an error takes text or pieces, in parentheses and in braces") {
  CHECK(std::string(shape_error("10 is not 12").what()) == "10 is not 12");
  CHECK(std::string(shape_error(std::string("10 is not 12")).what()) == "10 is not 12");
  CHECK(std::string(shape_error({10, " is not ", 12}).what()) == "10 is not 12");
  const shape_error one{10, " is not ", 12};
  const shape_error copy{one};
  CHECK(std::string(copy.what()) == "10 is not 12");
}
