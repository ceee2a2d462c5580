#pragma once
// Which shapes to measure: written out, from a file, or by the name of a network.

#include <charconv>
#include <cstddef>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "support/resnet50.hpp"

namespace split {

/// rows x in x out: y[rows, out] = x[rows, in] Wᵀ.
struct NamedShape {
  std::string name;
  std::size_t rows = 0;
  std::size_t in = 0;
  std::size_t out = 0;

  std::string extents() const {
    return std::to_string(rows) + 'x' + std::to_string(in) + 'x' + std::to_string(out);
  }
};

/// "512x4096x1024".
/// throws   std::runtime_error for anything else, extents below 1 or above 10^9 among it
inline NamedShape parse_shape(const std::string& text) {
  constexpr std::size_t largest = 1'000'000'000;
  const auto refuse = [&](const std::string& why) {
    throw std::runtime_error("the shape '" + text + "' " + why +
                             ": write rows x in x out, such as 512x4096x1024");
  };
  NamedShape shape{text, 0, 0, 0};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::size_t* extent : {&shape.rows, &shape.in, &shape.out}) {
    if (extent != &shape.rows && (at == end || *at++ != 'x')) refuse("has not three extents");
    const auto [behind, problem] = std::from_chars(at, end, *extent);
    if (problem == std::errc::result_out_of_range)
      *extent = largest + 1;
    else if (problem != std::errc())
      refuse("is no list of three whole numbers");
    if (*extent == 0) refuse("has an extent of 0, which leaves nothing to measure");
    if (*extent > largest) refuse("has an extent above 1000000000");
    at = behind;
  }
  if (at != end) refuse("goes on behind its three extents");
  return shape;
}

/// One shape a line; what follows a # is a comment, and empty lines are left out.
/// throws   std::runtime_error, with the line, for a file that cannot be read or holds no shape
inline std::vector<NamedShape> read_shapes(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("the file of shapes " + path + " cannot be read");
  std::vector<NamedShape> shapes;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    line.erase(std::min(line.find('#'), line.size()));
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos) continue;
    try {
      shapes.push_back(parse_shape(line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin)));
    } catch (const std::runtime_error& e) {
      throw std::runtime_error(path + ":" + std::to_string(number) + ": " + e.what());
    }
  }
  if (file.bad()) throw std::runtime_error("the file of shapes " + path + " cannot be read");
  if (shapes.empty()) throw std::runtime_error("the file of shapes " + path + " holds no shape");
  return shapes;
}

/// What presets leave open.
struct PresetSizes {
  std::vector<std::size_t> rows{512};  ///< tokens, for the products of transformers and of `mlp`
  std::size_t images = 4;              ///< for convolutions
  std::size_t shrink = 1;              ///< in and out are divided by this
};

namespace detail {

struct Product {
  std::string name;
  std::size_t in;
  std::size_t out;
};

inline std::vector<NamedShape> at_rows(const std::string& preset, const PresetSizes& sizes,
                                       const std::vector<Product>& products) {
  std::vector<NamedShape> shapes;
  for (const std::size_t rows : sizes.rows)
    for (const Product& product : products)
      shapes.push_back({preset + '/' + product.name, rows, product.in, product.out});
  return shapes;
}

/// Convolutions as the products that im2col makes of them: a row for each output pixel.
inline std::vector<NamedShape> resnet50(const PresetSizes& sizes) {
  std::vector<NamedShape> shapes;
  for (const bench::ConvolutionShape& c : bench::resnet50()) {
    const std::string kernel = std::to_string(c.kernel);
    shapes.push_back({"resnet50/" + kernel + 'x' + kernel + '-' + std::to_string(c.extent),
                      sizes.images * c.outputs() * c.outputs(), c.in * c.kernel * c.kernel, c.out});
  }
  return shapes;
}

/// Every pair of widths, for maps of who wins where.
inline std::vector<NamedShape> grid() {
  std::vector<NamedShape> shapes;
  for (const std::size_t rows : {16U, 256U})
    for (const std::size_t in : {128U, 256U, 512U, 1024U, 2048U})
      for (const std::size_t out : {128U, 256U, 512U, 1024U, 2048U})
        shapes.push_back({"grid", rows, in, out});
  return shapes;
}

}  // namespace detail

/// Presets by name.
/// source   gpt3: Brown et al. 2020, table 2.1; llama-70b: Touvron et al. 2023, with 8 key/value
///          heads of 128 features; resnet50: He et al. 2016, table 1
inline const std::map<std::string, std::function<std::vector<NamedShape>(const PresetSizes&)>>&
presets() {
  using Shapes = std::vector<NamedShape>;
  static const std::map<std::string, std::function<Shapes(const PresetSizes&)>> all{
      {"gpt3",
       [](const PresetSizes& sizes) {
         return detail::at_rows(
             "gpt3", sizes,
             {{"query", 12288, 12288}, {"up", 12288, 49152}, {"down", 49152, 12288}});
       }},
      {"llama-70b",
       [](const PresetSizes& sizes) {
         return detail::at_rows("llama-70b", sizes,
                                {{"query", 8192, 8192},
                                 {"key", 8192, 1024},
                                 {"up", 8192, 28672},
                                 {"down", 28672, 8192}});
       }},
      {"mlp",
       [](const PresetSizes& sizes) {
         return detail::at_rows("mlp", sizes, {{"up", 1024, 4096}, {"down", 4096, 1024}});
       }},
      {"resnet50", detail::resnet50},
      {"grid", [](const PresetSizes&) { return detail::grid(); }}};
  return all;
}

inline std::string names_of_presets() {
  std::string names;
  for (const auto& [name, make] : presets()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

/// throws   std::runtime_error for a name that is not there, with those that are
inline std::vector<NamedShape> preset(const std::string& name, const PresetSizes& sizes) {
  const auto found = presets().find(name);
  if (found == presets().end())
    throw std::runtime_error("there is no preset '" + name + "'; there are " + names_of_presets());
  std::vector<NamedShape> shapes = found->second(sizes);
  for (NamedShape& shape : shapes) {
    if (sizes.shrink == 1) continue;
    shape.name += "/" + std::to_string(sizes.shrink);
    shape.in = std::max<std::size_t>(1, shape.in / sizes.shrink);
    shape.out = std::max<std::size_t>(1, shape.out / sizes.shrink);
  }
  return shapes;
}

}  // namespace split
