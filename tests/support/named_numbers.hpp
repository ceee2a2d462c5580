#pragma once
// The numbers of a model by name.

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace testing {

using NamedNumbers = std::map<std::string, std::vector<double>>;

/// Puts the whole parameters of a model, and the rank's buffers, into `all`. Called on all ranks.
template <class M>
void collect(M& model, NamedNumbers& all) {
  std::vector<std::string> names;
  model.visit_parameters([&](auto& p) { names.push_back(p.name); });
  const auto put = [&](const std::string& name, const auto& numbers) {
    auto& there = all[name];
    there.clear();
    for (std::size_t i = 0; i < numbers.size(); ++i)
      there.push_back(static_cast<double>(numbers.data()[i]));
  };
  for (const std::string& name : names) put(name, model.gather(name));
  model.visit_buffers([&](const auto& buffer) { put(buffer.name, buffer.value); });
}

}  // namespace testing
