// docs/backends.md says which backend computes in which dtype; so do the types.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "shardwise/backend/cblas/cblas.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/backend/reference.hpp"

using namespace shardwise;

namespace {

template <class B>
std::string row(const std::string& name) {
  const auto cell = [](bool computes) { return computes ? " yes |" : " — |"; };
  return "| `" + name + "` |" + cell(Backend<B, float>) + cell(Backend<B, double>) +
         cell(Backend<B, bf16>) + cell(Backend<B, fp16>);
}

std::string document() {
  const std::filesystem::path here(__FILE__);
  std::ifstream file(here.parent_path() / "../../../docs/backends.md");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("the table of backends and dtypes says what the types say") {
  const std::string text = document();
  REQUIRE(!text.empty());
  CHECK(text.find("| backend | `float` | `double` | `bf16` | `fp16` |") != std::string::npos);
  for (const std::string& line :
       {row<Reference>("Reference"), row<OneDnn>("OneDnn"), row<Cblas>("Cblas")}) {
    CAPTURE(line);
    CHECK(text.find(line) != std::string::npos);
  }
}
