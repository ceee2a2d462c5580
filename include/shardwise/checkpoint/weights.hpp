#pragma once
// The tensors of a model in safetensors files, under their names.

#include <algorithm>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shardwise/checkpoint/load_parts.hpp"
#include "shardwise/checkpoint/part.hpp"
#include "shardwise/checkpoint/save_parts.hpp"
#include "shardwise/checkpoint/stage_parts.hpp"
#include "shardwise/checkpoint/tensor_files.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/model/host_ranks.hpp"
#include "shardwise/model/load_state.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/stages.hpp"

namespace shardwise {

namespace detail {

/// The prefix of the names of an optimizer's state.
inline constexpr const char* optimizer_prefix = "optimizer.";

inline FileTensor in_file(const TensorNames& names, const std::string& name) {
  const auto found = names.find(name);
  return found == names.end() ? FileTensor(name) : found->second;
}

/// While it lives, parameters of the model may be visited, also if it has no numbers, by a load.
template <class M>
SetMeanwhile<bool> visit_of(M& model, Passing passing) {
  bool& is_visited = load_state_of(model).is_visited_by_load;
  return SetMeanwhile(is_visited, is_visited || passing == Passing::each);
}

/// Calls `load`, and tells the models how it has ended and that values changed. Meanwhile a model
/// that may be written to in place is in no call of another thread.
template <class M, class Load>
void told_to(M& models, Load&& load) {
  std::optional<OneThread::Call> here;
  if constexpr (OneModel<M>) here.emplace(models.run().one_thread);
  try {
    load();
  } catch (const std::exception& e) {
    for_each_model(models, [&](auto& one) { load_state_of(one).fail(e.what()); });
    throw;
  }
  for_each_model(models, [](auto& one) {
    load_state_of(one).end();
    one.values_changed();
  });
}

/// This rank's parts of all parameters and of the buffers of layers. For stages of a pipeline also
/// parts of those of other stages, without elements. Throws argument_error if `names` has a name
/// that no stage has.
template <class M>
std::vector<TensorPart> model_parts(M& models, const TensorNames& names, Passing passing) {
  PartsOfModels parameters, buffers;
  TensorNames unused = names;
  const auto runs = runs_of(models);
  require_all_stages(runs, "a checkpoint");
  const auto add_model = [&]<class Model>(Model& model) {
    const auto visits = visit_of(model, passing);
    const auto& memory = model.run().parameters;
    const auto add = [&](std::vector<TensorPart>& parts, auto& tensor,
                         std::optional<Interval> stored = {}) {
      unused.erase(tensor.name);
      add_parts(parts, in_file(names, tensor.name), tensor.value, tensor.value.data(), 1, stored);
    };
    auto& of_model = parameters.emplace_back();
    model.visit_stored([&](auto& parameter) {
      add(of_model, parameter,
          memory.stores_share() ? std::optional(memory.stored(parameter.slot)) : std::nullopt);
    });
    auto& of_layers = buffers.emplace_back();
    model.visit_buffers([&](auto& buffer) { add(of_layers, buffer); });
    reach(model.backend(), of_model);
    reach(model.backend(), of_layers);
    for (auto* parts : {&of_model, &of_layers})
      for (TensorPart& part : *parts) part.in_place = !Model::use::trains;
  };
  on_all_stages(runs.first(), [&] { for_each_model(models, add_model); });
  require_used(runs.first(), names, unused);
  const auto all_parameters = parts_of_all_stages(runs.first(), parameters, passing);
  return joined(all_parameters, parts_of_all_stages(runs.first(), buffers, passing));
}

inline bool is_of_optimizer(const std::string& name) { return name.starts_with(optimizer_prefix); }

/// Throws data_error for files with an optimizer's state but without parameters.
inline void check_has_parameters(const TensorFiles& files,
                                 const std::vector<TensorPart>& parameters) {
  const auto is_there = [&files](const TensorPart& part) {
    return files.tensors().contains(part.file.name);
  };
  const bool has_moments =
      std::any_of(files.tensors().begin(), files.tensors().end(),
                  [](const auto& tensor) { return is_of_optimizer(tensor.first); });
  if (!has_moments || std::any_of(parameters.begin(), parameters.end(), is_there)) return;
  throw data_error({files.name(),
                    ": holds what an optimizer keeps, but not one parameter of the model, so there "
                    "is nothing to go on from; the parameters must be in the same checkpoint"});
}

}  // namespace detail

/// The names of a model whose parameters are `places` in a file, in the order in which
/// `visit_parameters` visits them.
/// throws   argument_error if the model has another number of parameters
template <class M>
TensorNames names_in_order(M& model, const std::vector<FileTensor>& places) {
  TensorNames names;
  std::size_t count = 0;
  const auto visits = detail::visit_of(model, detail::Passing::each);
  model.visit_stored([&](auto& parameter) {
    if (count < places.size()) names.emplace(parameter.name, places[count]);
    ++count;
  });
  if (count == places.size()) return names;
  throw argument_error({"checkpoint: ", places.size(), " names are given for a model of ", count,
                        " parameters; give one for each"});
}

/// Writes a model's parameters and the buffers of its layers (running statistics) as the
/// safetensors file `path`, or as several with an index (`SaveOptions::max_shard_bytes`). A linear
/// layer's weight is [output, input] here as in PyTorch, so `safetensors.torch.load_file` gives a
/// state_dict. A collective: every rank writes its part. In a pipeline all stages call it, each
/// rank with the model of its stage or with its PipelineChunks, and write the layers of the whole
/// model.
/// sends    as save_parts, and in a pipeline what describes the tensors of each stage to all ranks
/// throws   as save_parts
template <class M>
void save_weights(const std::filesystem::path& path, M& model, const SaveOptions& options = {}) {
  HostRanks ranks(detail::runs_of(model).first());
  save_parts(path, ranks, detail::model_parts(model, options.names, detail::Passing::first),
             options);
}

/// Loads what save_weights writes, from a file or an index of files, written at any number of
/// ranks, by PyTorch, or by another program. Ignores the state of an optimizer. Each rank reads its
/// own part: to separate memory of the same size for a model that trains, and to the parameters
/// themselves for one that is ForwardOnly, a few MiB at a time, or on a device a tensor at a time.
/// A collective, of all stages of a pipeline; returns the file's metadata.
///
/// sends    as open_checkpoint and load_parts, and in a pipeline as save_weights
/// throws   as load_parts. The model is then as before on every rank; but a ForwardOnly one whose
///          files fit and then could not be read has some of their numbers, and until a load ends
///          each call of it that needs numbers is an argument_error, on every rank
template <class M>
std::map<std::string, std::string> load_weights(const std::filesystem::path& path, M& model,
                                                const LoadOptions& options = {}) {
  const std::vector<TensorPart> parts =
      detail::model_parts(model, options.names, detail::Passing::each);
  HostRanks ranks(detail::runs_of(model).first());
  std::map<std::string, std::string> metadata;
  detail::told_to(model, [&] {
    TensorFiles files = open_checkpoint(path, ranks);
    detail::check_has_parameters(files, parts);
    const auto tensors =
        detail::requested_tensors(files, ranks, parts, options, detail::is_of_optimizer);
    detail::for_each_model(model, []<class One>(One& one) {
      if (!One::use::trains) detail::load_state_of(one).begin_overwriting();
    });
    detail::load_tensors(files, ranks, tensors);
    metadata = std::move(files).metadata();
  });
  return metadata;
}

}  // namespace shardwise
