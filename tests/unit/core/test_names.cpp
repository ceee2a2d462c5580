// Compiled alone: a source that is compiled with others is in a namespace, which names would have.

#include <doctest/doctest.h>

#include <string>

#include "shardwise/core/names.hpp"

using namespace shardwise;

namespace {

template <class T>
struct Twice {};
template <class A, class B>
struct Both {};

template <class T>
std::string name_in_template(const T&, Twice<T>) {
  struct Net {};
  return detail::name_of<Both<Net, Twice<Net>>>();
}

struct Trainer {
  std::string name() const {
    struct Net {};
    return detail::name_of<Net>();
  }
};

// g++ writes "> >".
std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

}  // namespace

TEST_CASE("a type that a function declares has its own name, with every compiler") {
  struct Net {};
  CHECK(detail::name_of<Net>() == "Net");
  CHECK(without_spaces(detail::name_of<Both<Twice<Net>, Net>>()) == "Both<Twice<Net>,Net>");
  CHECK(without_spaces(name_in_template(1, {})) == "Both<Net,Twice<Net>>");
  CHECK(Trainer{}.name() == "Net");
  const auto in_lambda = [](auto) {
    struct Inner {};
    return detail::name_of<Twice<Inner>>();
  };
  CHECK(in_lambda(1) == "Twice<Inner>");
}

TEST_CASE("texts of g++ lose functions, and nothing else") {
  CHECK(detail::readable_name("shardwise::Sequential<a::run(int, b<c>)::Net, shardwise::Relu>") ==
        "Sequential<Net, Relu>");
  CHECK(detail::readable_name("K::operator()<double>(double) const::Net") == "Net");
  CHECK(detail::readable_name("f<int, Q<int> >(int)::<lambda(auto:11)>::In") == "In");
  CHECK(detail::readable_name("app::Net<18446744073709551615>") == "app::Net<dynamic>");
}
