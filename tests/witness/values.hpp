#pragma once
// What PyTorch computed, from the files that make_witness.py left in values/.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "shardwise/checkpoint/tensor_files.hpp"
#include "shardwise/core/error.hpp"

namespace witness {

/// A group of tensors, all of double, by name. What is not there is an error that names it.
class Values {
 public:
  /// `path` is a file and groups in it: "layers/linear" has "with_bias/dx", of
  /// values/layers.safetensors, and "layers/linear/with_bias" has "dx".
  explicit Values(const std::string& path) : path_(path) {
    const std::size_t slash = path.find('/');
    const std::string group = slash == std::string::npos ? "" : path.substr(slash + 1) + '/';
    const auto folder = std::filesystem::path(__FILE__).parent_path() / "values";
    const shardwise::TensorFiles files(folder / (path.substr(0, slash) + ".safetensors"));
    for (const auto& [name, place] : files.tensors()) {
      if (!name.starts_with(group)) continue;
      if (place.info.dtype != shardwise::detail::file_dtype_v<double>) fail("is not all of F64");
      const std::string rest = name.substr(group.size());
      shapes_[rest] = place.info.shape;
      std::vector<double>& numbers = numbers_[rest];
      numbers.resize((place.info.end - place.info.begin) / sizeof(double));
      files.open(place.file)
          .read(files.begin_of(place), std::as_writable_bytes(std::span(numbers)));
    }
    if (numbers_.empty()) fail("is no group");
  }

  /// Where it is.
  const std::string& path() const { return path_; }

  /// The elements of a tensor, row-major, for as long as this lives.
  std::span<const double> operator[](const std::string& name) const& { return of(numbers_, name); }
  std::span<const double> operator[](const std::string& name) const&& = delete;

  /// The only element of a tensor.
  double number(const std::string& name) const {
    const std::vector<double>& numbers = of(numbers_, name);
    if (numbers.size() != 1) fail("has more in " + name + " than one number");
    return numbers[0];
  }

  /// The extents of a tensor, outermost first.
  const std::vector<std::uint64_t>& shape(const std::string& name) const {
    return of(shapes_, name);
  }

  /// A group of this group.
  Values group(const std::string& name) const { return Values(path_ + '/' + name); }

  /// All groups of this group.
  std::vector<Values> groups() const {
    std::set<std::string> names;
    for (const auto& [name, numbers] : numbers_)
      if (name.find('/') != std::string::npos) names.insert(name.substr(0, name.find('/')));
    if (names.empty()) fail("has no groups");
    std::vector<Values> found;
    found.reserve(names.size());
    for (const std::string& name : names) found.push_back(group(name));
    return found;
  }

  /// All tensors, by name.
  const std::map<std::string, std::vector<double>>& tensors() const { return numbers_; }

 private:
  template <class T>
  const T& of(const std::map<std::string, T>& tensors, const std::string& name) const {
    const auto found = tensors.find(name);
    if (found == tensors.end()) fail("has no tensor " + name);
    return found->second;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw shardwise::data_error({"values of PyTorch: ", path_, " ", what});
  }

  std::string path_;
  std::map<std::string, std::vector<double>> numbers_;
  std::map<std::string, std::vector<std::uint64_t>> shapes_;
};

}  // namespace witness
