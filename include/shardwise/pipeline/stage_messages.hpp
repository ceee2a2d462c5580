#pragma once
// The messages between neighbouring stages of a pipeline.

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "shardwise/comm/mark.hpp"

namespace shardwise::detail {

/// Messages to and from the next stage (1) or the one before (-1), each of one of so many batches.
template <class Stage>
class StageMessages {
  using T = typename Stage::model_type::dtype;
  using Line = std::remove_cvref_t<decltype(std::declval<Stage&>().line())>;

 public:
  StageMessages(Stage& stage, std::size_t batches) : stage_(stage), batches_(batches) {}

  void send(std::span<const T> numbers, int stages, std::size_t batch, Phase phase) {
    const auto here = marked(batch, phase);
    Line& line = line_of(phase);
    line.send(numbers, rank_at(line, stages), tag(line, stage_number + stages, batch));
  }
  void receive(std::span<T> numbers, int stages, std::size_t batch, Phase phase) {
    const auto here = marked(batch, phase);
    Line& line = line_of(phase);
    line.receive(numbers, rank_at(line, stages), tag(line, stage_number, batch));
  }

 private:
  MarkedPhase marked(std::size_t batch, Phase phase) {
    return MarkedPhase(static_cast<std::uint32_t>(stage_.model().step()),
                       static_cast<std::uint16_t>(batch), phase, {});
  }
  Line& line_of(Phase phase) {
    auto& rank = stage_.of_rank();
    return phase == Phase::backward ? rank.gradient_line() : rank.line();
  }
  /// The rank of a neighbouring stage.
  static int rank_at(const Line& line, int stages) {
    return (line.rank() + stages + line.size()) % line.size();
  }
  /// Of a message for this stage.
  int tag(const Line& line, int to, std::size_t batch) const {
    const int chunk = to / line.size();
    return chunk * static_cast<int>(batches_) + static_cast<int>(batch);
  }

  static constexpr int stage_number = static_cast<int>(Stage::number);

  Stage& stage_;
  std::size_t batches_;
};

}  // namespace shardwise::detail
