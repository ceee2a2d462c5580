// Messages gain places while an error travels outwards.

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>

#include "shardwise/core/error.hpp"
#include "shardwise/core/location.hpp"

using namespace shardwise;

TEST_CASE("places stand in front, the outermost first") {
  shape_error e("10 is not 12");
  CHECK(std::string(e.what()) == "10 is not 12");
  e.add_place("2: Relu");
  CHECK(std::string(e.what()) == "2: Relu: 10 is not 12");
  e.add_place("Mlp", " / ");
  CHECK(std::string(e.what()) == "Mlp / 2: Relu: 10 is not 12");
  e.add_place("rank 3");
  CHECK(std::string(e.what()) == "rank 3: Mlp / 2: Relu: 10 is not 12");
}

TEST_CASE("the innermost place is followed by a colon, whatever the next one wants") {
  shape_error e("10 is not 12");
  e.add_place("1: Residual<Relu>", " / ");
  CHECK(std::string(e.what()) == "1: Residual<Relu>: 10 is not 12");
  e.add_place("Mlp", " / ");
  CHECK(std::string(e.what()) == "Mlp / 1: Residual<Relu>: 10 is not 12");
}

TEST_CASE("a long place stands behind the message") {
  const std::string type = "Sequential<" + std::string(80, 'x') + ">";
  argument_error e("id 13 is not in the table");
  e.add_place("0: Embedding");
  e.add_place(type, " / ");
  e.add_place("rank 3");
  CHECK(std::string(e.what()) ==
        "rank 3: 0: Embedding: id 13 is not in the table (in " + type + ")");
}

TEST_CASE("a place can be added while an error passes, and its type stays") {
  const auto inner = [] { throw numeric_error("the loss is not a number"); };
  const auto outer = [&] {
    try {
      inner();
    } catch (error& e) {
      e.add_place("step 7");
      throw;
    }
  };
  CHECK_THROWS_WITH_AS(outer(), "step 7: the loss is not a number", numeric_error);
}

TEST_CASE("an error begins with where its thread was when it was made, the outermost first") {
  using detail::DescribedLocation;
  using detail::Location;
  const auto message = [] { return std::string(argument_error("no such id").what()); };
  CHECK(message() == "no such id");
  {
    const Location model([] { return std::string("Mlp"); }, true);
    CHECK(message() == "Mlp: no such id");
    const Location part([] { return std::string("3: Relu"); }, false);
    const DescribedLocation call([number = 7] { return "call " + std::to_string(number); });
    CHECK(message() == "Mlp / 3: Relu: call 7: no such id");
    std::string on_another_thread;
    std::thread([&] { on_another_thread = message(); }).join();
    CHECK(on_another_thread == "no such id");
  }
  CHECK(message() == "no such id");
}

TEST_CASE("what an error meets on its way out stands before where it was made") {
  const auto fail = [] {
    const detail::Location part([] { return std::string("2: Relu"); }, false);
    throw shape_error("10 is not 12");
  };
  try {
    fail();
  } catch (error& e) {
    CHECK(detail::current_location == nullptr);
    e.add_place("rank 3");
    CHECK(std::string(e.what()) == "rank 3: 2: Relu: 10 is not 12");
  }
}

TEST_CASE("an empty place adds nothing") {
  argument_error e("no such id");
  e.add_place("", " / ");
  CHECK(std::string(e.what()) == "no such id");
}

TEST_CASE("a foreign exception keeps itself and its rank") {
  std::exception_ptr cause;
  try {
    throw std::out_of_range("17");
  } catch (...) {
    cause = std::current_exception();
  }
  const rank_error e(5, cause, "17");
  CHECK(e.rank() == 5);
  CHECK(std::string(e.what()) == "rank 5: 17");
  CHECK_THROWS_AS(std::rethrow_exception(e.cause()), std::out_of_range);
}

TEST_CASE_TEMPLATE("each kind can be told apart and all are one", E, shape_error, argument_error,
                   collective_error, peer_error, numeric_error, data_error, memory_error,
                   backend_error) {
  static_assert(std::is_base_of_v<error, E> && std::is_base_of_v<std::exception, E>);
  CHECK_THROWS_AS(throw E("text"), E);
  CHECK_THROWS_AS(throw E("text"), error);
  CHECK_THROWS_WITH_AS(throw E("text"), "text", std::exception);
}
