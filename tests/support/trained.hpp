#pragma once
// What models learn: runs of training, and the numbers of a model that tests compare. What tests of
// training ask of a model for them is asked here.
//
//   parameters_of(models)     whole ones by name, and the rank's buffers
//   gradients_of(model)       whole ones by name
//   trained(models, n, step)  the losses of n calls of step(), and the parameters behind them
//   check_near(many, one, b)  two of these differ by b at most

#include <doctest/doctest.h>

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/model/stages.hpp"
#include "support/largest_difference.hpp"

namespace testing {

/// The numbers of a model by name.
using NamedNumbers = std::map<std::string, std::vector<double>>;

/// The elements of a tensor, a view or a span.
template <class Elements>
std::vector<double> numbers_in(const Elements& elements) {
  std::vector<double> numbers;
  numbers.reserve(elements.size());
  for (std::size_t i = 0; i < elements.size(); ++i)
    numbers.push_back(static_cast<double>(elements.data()[i]));
  return numbers;
}

/// The names of the parameters, in the order of the model.
template <class M>
std::vector<std::string> names_of(M& model) {
  std::vector<std::string> names;
  model.visit_parameters([&](const auto& parameter) { names.push_back(parameter.name); });
  return names;
}

/// Adds `more`; what is there already must be the same.
inline void merge(NamedNumbers& all, const NamedNumbers& more) {
  for (const auto& entry : more) {
    const auto [place, is_new] = all.insert(entry);
    INFO(entry.first);
    CHECK((is_new || place->second == entry.second));
  }
}

/// The whole parameters of a model, or of all stages of a rank, which must agree on those that they
/// share, and the rank's buffers. Called on all ranks.
template <class Models>
NamedNumbers parameters_of(Models& models) {
  NamedNumbers all;
  shardwise::detail::for_each_model(models, [&](auto& model) {
    NamedNumbers of_model;
    for (const std::string& name : names_of(model)) of_model[name] = numbers_in(model.gather(name));
    model.visit_buffers(
        [&](const auto& buffer) { of_model[buffer.name] = numbers_in(buffer.value); });
    merge(all, of_model);
  });
  return all;
}

/// The whole gradients of a model, once they are settled. Called on all ranks.
template <class M>
NamedNumbers gradients_of(M& model) {
  NamedNumbers all;
  for (const std::string& name : names_of(model))
    all[name] = numbers_in(model.gather_gradient(name));
  return all;
}

/// What some steps come to.
struct TrainingResult {
  std::vector<double> losses{};
  NamedNumbers parameters{};
};

/// Calls step(), which trains `models` and returns the loss, so many times. `models` is a model or
/// the stages of a rank.
template <class Models, class Step>
TrainingResult trained(Models& models, int steps, Step&& step) {
  TrainingResult result;
  for (int i = 0; i < steps; ++i) result.losses.push_back(static_cast<double>(step()));
  result.parameters = parameters_of(models);
  return result;
}

/// What ranks learn together: the losses, which they have alike, and the parameters of all.
inline TrainingResult all_of(const std::vector<TrainingResult>& ranks) {
  TrainingResult all;
  for (const TrainingResult& one : ranks) {
    CHECK(one.losses == ranks[0].losses);
    merge(all.parameters, one.parameters);
  }
  all.losses = ranks[0].losses;
  return all;
}

/// Each of `some` is among `all`, and differs by `bound` at most.
inline void check_near(const NamedNumbers& some, const NamedNumbers& all, double bound) {
  CHECK(!some.empty());
  for (const auto& one : some) {
    INFO(one.first);
    const auto other = all.find(one.first);
    REQUIRE(other != all.end());
    CHECK(largest_difference(one.second, other->second) <= bound);
  }
}

/// The losses of `some` are those of `all`, and so are the parameters that it has.
inline void check_near(const TrainingResult& some, const TrainingResult& all, double bound) {
  CHECK(largest_difference(some.losses, all.losses) <= bound);
  check_near(some.parameters, all.parameters, bound);
}

}  // namespace testing
