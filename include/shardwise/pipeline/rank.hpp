#pragma once
// What a rank of a pipeline has once for all its stages: the groups of ranks in which stages send
// each other messages.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "shardwise/comm/detail/agreed.hpp"
#include "shardwise/comm/given_options.hpp"
#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/core/growing_list.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/model/model_options.hpp"
#include "shardwise/pipeline/event_order.hpp"
#include "shardwise/pipeline/schedule.hpp"

namespace shardwise::detail {

/// A hash of a shape.
inline std::uint32_t digest(const Shape& shape) {
  std::uint32_t hash = 0;
  for (const Dim& dim : shape)
    hash = mixed(mixed(hash, static_cast<std::uint32_t>(dim.axis)),
                 static_cast<std::uint32_t>(dim.extent()));
  return hash;
}

/// Of several shapes.
template <std::size_t N>
std::uint32_t digest(const std::array<Shape, N>& shapes) {
  std::uint32_t hash = 0;
  for (const Shape& shape : shapes) hash = mixed(hash, digest(shape));
  return hash;
}

///@{
/// "[batch 5, feature 6] and [batch 5]".
[[gnu::cold]] inline std::string shapes_text(const Shape& shape) { return to_string(shape); }
template <std::size_t N>
[[gnu::cold]] std::string shapes_text(const std::array<Shape, N>& shapes) {
  std::string text;
  for (const Shape& shape : shapes) append(text, {text.empty() ? "" : " and ", shape});
  return text;
}
///@}

/// Throws collective_error, with what differs, if ranks were given unlike pipelines. A collective.
template <class Ranks, class Shapes>
void require_same_pipeline(Ranks& ranks, Seed seed, const Shapes& in, const ModelOptions& options) {
  const std::string shape = shapes_text(in), keep = to_string(options.keep);
  GivenOptions given;
  given.add("seed", seed.value);
  given.add("shape", std::string_view(shape));
  given.add("keep", std::string_view(keep));
  given.add("bucket_bytes", options.bucket_bytes);
  given.add("sums_in_shares", options.sums_in_shares);
  given.add("sums_meanwhile", options.sums_meanwhile);
  given.add("layers_ahead", options.layers_ahead);
  given.add("compare_given_every", options.compare_given_every);
  require_agreed(ranks, "the pipeline", given);
}

/// The ranks of the stage of this rank, as a mesh of one rank along `pipeline`. A collective.
template <class C>
MeshRanks<C> stage_ranks(MeshRanks<C>& ranks) {
  mesh sizes = ranks.sizes();
  sizes.pipeline = 1;
  C group = static_cast<C&>(ranks).split(ranks.place()[MeshAxis::pipeline].rank, ranks.rank());
  return MeshRanks<C>(std::move(group), sizes, ranks.order());
}

/// A schedule that ranks have found good, its hash, and what this rank does.
struct CheckedSchedule {
  PipelineSchedule schedule{0};
  std::uint32_t digest = 0;
  GrowingList<StageEvent> events{};
};

/// What a rank of a pipeline has once for all its stages: its groups, and the schedule that it
/// found good.
template <class Ranks>
class PipelineRank {
 public:
  /// The ranks along `pipeline`.
  using Line = std::remove_cvref_t<decltype(std::declval<Ranks&>().along(MeshAxis::pipeline))>;

  /// For so many stages of each rank, whose models have these options. A collective of all ranks of
  /// the mesh.
  PipelineRank(Ranks& ranks, std::size_t stages, const ModelOptions& options)
      : all_ranks_(ranks),
        line_(ranks.along(MeshAxis::pipeline)),
        ranks_(stage_ranks(ranks)),
        stages_(stages),
        options_(options) {
    if (stages > 1) gradient_line_.emplace(line_.split(0, line_.rank()));
  }

  ///@{
  /// All ranks of the mesh; those along `pipeline`; those of the same place along it.
  Ranks& all_ranks() { return all_ranks_; }
  Line& line() { return line_; }
  Ranks& ranks() { return ranks_; }
  ///@}
  /// Those along `pipeline`, for gradients. With several stages a rank may send outputs and
  /// gradients to the same rank, in another order than that in which it takes them; a group has one
  /// order.
  Line& gradient_line() { return gradient_line_ ? *gradient_line_ : line_; }
  /// The number of stages of each rank.
  std::size_t stages() const { return stages_; }
  /// Of their models.
  const ModelOptions& options() const { return options_; }
  /// Those along `pipeline` that have one of these stages, if this rank has one; they share
  /// parameters. The first call is a collective of the ranks along `pipeline`.
  Line& tied_line(const std::set<std::size_t>& stages) {
    if (!tied_line_) {
      const Place here = place_of(line_);
      const bool shares = std::any_of(stages.begin(), stages.end(), [&](std::size_t stage) {
        return static_cast<int>(stage) % here.size == here.rank;
      });
      tied_line_.emplace(line_.split(shares ? 1 : 0, here.rank));
    }
    return *tied_line_;
  }
  /// The schedule of the last step.
  CheckedSchedule& checked() { return checked_; }

 private:
  Ranks& all_ranks_;
  Line& line_;
  Ranks ranks_;
  std::size_t stages_;
  ModelOptions options_;
  std::optional<Line> gradient_line_{};
  std::optional<Line> tied_line_{};
  CheckedSchedule checked_{};
};

}  // namespace shardwise::detail
