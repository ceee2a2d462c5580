#pragma once
// Which shapes to measure: written out, or by the name of a network.

#include <algorithm>
#include <cstddef>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/resnet50.hpp"

namespace split {

/// rows x in x out: y[rows, out] = x[rows, in] Wᵀ.
struct NamedShape {
  std::string name;
  std::size_t rows = 0;
  std::size_t in = 0;
  std::size_t out = 0;

  /// "mlp/up 512x1024x4096".
  std::string title() const {
    const std::string extents =
        std::to_string(rows) + 'x' + std::to_string(in) + 'x' + std::to_string(out);
    return (name.empty() ? "" : name + ' ') + extents;
  }
};

/// "512x4096x1024".
/// throws   std::runtime_error for anything else
inline NamedShape parse_shape(const std::string& text) {
  std::smatch extents;
  if (!std::regex_match(text, extents,
                        std::regex(R"(([1-9]\d{0,8})x([1-9]\d{0,8})x([1-9]\d{0,8}))")))
    throw std::runtime_error("'" + text +
                             "' is no shape: write rows x in x out, such as 512x4096x1024, each "
                             "above 0 and below 10^9");
  return {"", std::stoul(extents[1]), std::stoul(extents[2]), std::stoul(extents[3])};
}

/// What presets leave open.
struct PresetSizes {
  std::vector<std::size_t> rows{512};  ///< tokens, for the products of transformers and of `mlp`
  std::size_t shrink = 1;              ///< in and out are divided by this
};

/// The products of a network.
struct Preset {
  std::string name;
  std::vector<NamedShape> products;  ///< 0 rows: as many as are asked for
};

/// Transformers by their weights; ResNet-50's convolutions of 4 images as the products that im2col
/// makes of them, a row for each output pixel; and every pair of widths, for maps of who wins
/// where. source   Brown et al. 2020, table 2.1; Touvron et al. 2023, table 1
inline std::vector<Preset> presets() {
  Preset grid{"grid", {}}, resnet50{"resnet50", {}};
  for (const std::size_t rows : {16U, 256U})
    for (const std::size_t in : {128U, 256U, 512U, 1024U, 2048U})
      for (const std::size_t out : {128U, 256U, 512U, 1024U, 2048U})
        grid.products.push_back({"grid", rows, in, out});
  for (const bench::ConvolutionShape& c : bench::resnet50()) {
    const std::string kernel = std::to_string(c.kernel);
    resnet50.products.push_back(
        {"resnet50/" + kernel + 'x' + kernel + '-' + std::to_string(c.extent),
         4 * c.outputs() * c.outputs(), c.in * c.kernel * c.kernel, c.out});
  }
  return {{"gpt3",
           {{"gpt3/query", 0, 12288, 12288},
            {"gpt3/up", 0, 12288, 49152},
            {"gpt3/down", 0, 49152, 12288}}},
          grid,
          {"llama-70b",
           {{"llama-70b/query", 0, 8192, 8192},
            {"llama-70b/key", 0, 8192, 1024},
            {"llama-70b/up", 0, 8192, 28672},
            {"llama-70b/down", 0, 28672, 8192}}},
          {"mlp", {{"mlp/up", 0, 1024, 4096}, {"mlp/down", 0, 4096, 1024}}},
          resnet50};
}

inline std::string names_of_presets() {
  std::string names;
  for (const Preset& preset : presets()) names += (names.empty() ? "" : ", ") + preset.name;
  return names;
}

/// throws   std::runtime_error for a name that is not there, with those that are
inline std::vector<NamedShape> preset(const std::string& name, const PresetSizes& sizes) {
  const std::vector<Preset> all = presets();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Preset& one) { return one.name == name; });
  if (found == all.end())
    throw std::runtime_error("there is no preset '" + name + "'; there are " + names_of_presets());
  std::vector<NamedShape> shapes;
  const auto add = [&](NamedShape shape, std::size_t rows) {
    if (sizes.shrink > 1) shape.name.append("/").append(std::to_string(sizes.shrink));
    shape.in = std::max<std::size_t>(1, shape.in / sizes.shrink);
    shape.out = std::max<std::size_t>(1, shape.out / sizes.shrink);
    shape.rows = rows;
    shapes.push_back(shape);
  };
  for (const NamedShape& product : found->products) {
    if (product.rows > 0) add(product, product.rows);
  }
  for (const std::size_t rows : sizes.rows)
    for (const NamedShape& product : found->products)
      if (product.rows == 0) add(product, rows);
  return shapes;
}

}  // namespace split
