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

template <class B>
std::string convolution_row(const std::string& name) {
  const auto cell = [](bool computes) { return computes ? " yes |" : " — |"; };
  return "| `" + name + "` |" + cell(ConvolutionBackend<B, float>) +
         cell(ConvolutionBackend<B, double>) + cell(ConvolutionBackend<B, bf16>) +
         cell(ConvolutionBackend<B, fp16>);
}

std::string document() {
  const std::filesystem::path here(__FILE__);
  std::ifstream file(here.parent_path() / "../../../docs/backends.md");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("the tables of backends and dtypes say what the types say") {
  const std::string text = document();
  REQUIRE(!text.empty());
  const std::size_t products = text.find("| backend | `float` | `double` | `bf16` | `fp16` |");
  const std::size_t convolutions = text.find("| convolutions by | `float` | `double` | `bf16` |");
  REQUIRE(products < convolutions);
  REQUIRE(convolutions < text.size());
  const auto holds = [&](std::size_t table, const std::string& line) {
    CAPTURE(line);
    CHECK(text.find(line, table) < text.find("\n\n", table));
  };
  holds(products, row<Reference>("Reference"));
  holds(products, row<OneDnn>("OneDnn"));
  holds(products, row<Cblas>("Cblas"));
  holds(convolutions, convolution_row<Reference>("Reference"));
  holds(convolutions, convolution_row<OneDnn>("OneDnn"));
  holds(convolutions, convolution_row<Cblas>("Cblas"));
}
