#pragma once
// The parts of the stages of a pipeline, which all ranks name when they save or load a checkpoint.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/checkpoint/dtype.hpp"
#include "shardwise/checkpoint/part.hpp"
#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/model/agree.hpp"
#include "shardwise/model/host_ranks.hpp"
#include "shardwise/model/run.hpp"

namespace shardwise::detail {

/// Which stages pass a tensor that several of them have.
enum class Passing : std::uint8_t {
  first,  ///< the first of them: to save it
  each    ///< each of them: to load it
};

/// What other stages need to know of some parts.
inline std::string text_of(const std::vector<TensorPart>& parts) {
  std::ostringstream text;
  for (const TensorPart& part : parts) {
    text << part.file.name.size() << ' ' << part.file.name << ' ' << part.file.first_row << ' '
         << part.file.transposed << ' ' << part.file.ones << ' ' << part.dtype.name << ' '
         << part.whole.rank();
    for (const Dim& dim : part.whole) text << ' ' << dim.extent();
    text << '\n';
  }
  return text.str();
}

/// Parts of these tensors, of which this rank has no elements.
inline std::vector<TensorPart> parts_elsewhere(const std::string& text) {
  std::vector<TensorPart> parts;
  std::istringstream in(text);
  for (std::size_t length = 0; in >> length;) {
    std::string name(length, ' '), dtype;
    in.get();
    in.read(name.data(), static_cast<std::streamsize>(length));
    FileTensor file(std::move(name));
    std::size_t rank = 0;
    in >> file.first_row >> file.transposed >> file.ones >> dtype >> rank;
    Shape whole;
    for (std::size_t i = 0; i < rank; ++i) {
      std::size_t extent = 0;
      in >> extent;
      whole.append({Axis::batch, extent});
    }
    parts.push_back({.file = std::move(file),
                     .dtype = *find_file_dtype(dtype),
                     .whole = whole,
                     .local = whole,
                     .box = {whole, {}},
                     .cut = CutPart{}});
  }
  return parts;
}

/// The parts of each model of a rank.
using PartsOfModels = std::vector<std::vector<TensorPart>>;

/// The parts of all stages, if the rank's models are stages of a pipeline: those of this rank, and
/// of other stages' tensors parts without elements, in the order of the stages.
/// sends    for each stage two broadcasts: of a number, and of a text that describes its parts
template <class Context>
std::vector<TensorPart> parts_of_all_stages([[maybe_unused]] Run<Context>& run,
                                            const PartsOfModels& mine,
                                            [[maybe_unused]] Passing passing) {
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    if (run.stage.all_ranks == nullptr) return mine[0];
    HostRanks ranks(run);
    const Place here = run.stage.all_ranks->place()[MeshAxis::pipeline];
    std::vector<TensorPart> all;
    std::map<std::pair<std::string, std::size_t>, int> first_stages;  // by name and row
    for (int stage = 0; stage < static_cast<int>(run.stage.count); ++stage) {
      MeshPlace first;  // of the ranks of the stage
      for (const MeshAxis axis : mesh_axes) first[axis].size = run.stage.all_ranks->sizes()[axis];
      first[MeshAxis::pipeline].rank = stage % here.size;
      const bool is_here = stage % here.size == here.rank;
      const auto& parts = mine[static_cast<std::size_t>(stage / here.size)];
      const std::string text =
          broadcast_text(ranks, text_of(parts), rank_at(first, run.stage.all_ranks->order()));
      for (const TensorPart& part : is_here ? parts : parts_elsewhere(text)) {
        const std::pair key{part.file.name, part.file.first_row};
        const bool is_first = first_stages.emplace(key, stage).first->second == stage;
        if (is_first || (passing == Passing::each && is_here)) all.push_back(part);
      }
    }
    return all;
  } else {
    return mine[0];
  }
}

/// Calls `call`, which finds this rank's parts. If it throws in some stages of a pipeline, all
/// ranks throw.
template <class Context, class Call>
void on_all_stages([[maybe_unused]] Run<Context>& run, Call&& call) {
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    if (run.stage.all_ranks != nullptr) {
      HostRanks ranks(run);
      return on_all_ranks<argument_error>(ranks, call);
    }
  }
  call();
}

/// Throws argument_error if `names` has a name that is `unused` by this rank and, in a pipeline, by
/// the ranks of all other stages.
template <class Context>
void require_used([[maybe_unused]] Run<Context>& run, const TensorNames& names,
                  const TensorNames& unused) {
  std::vector<std::int32_t> is_used;
  for (const auto& entry : names) is_used.push_back(unused.contains(entry.first) ? 0 : 1);
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    if (run.stage.all_ranks != nullptr && !names.empty()) {
      HostRanks ranks(run);
      ranks.all_reduce(std::span<const std::int32_t>(is_used), std::span(is_used), Reduction::max);
    }
  }
  auto used = is_used.begin();
  for (const auto& entry : names)
    if (*used++ == 0)
      throw argument_error({"checkpoint: the options give a name for ", in_quotes(entry.first),
                            ", which the model does not have"});
}

}  // namespace shardwise::detail
