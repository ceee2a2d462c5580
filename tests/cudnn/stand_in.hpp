#pragma once
// How tests steer the stand-in for cuDNN (stand_in.cpp).

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cudnn_stand_in {

/// What the heuristics propose for every graph.
struct Engine {
  std::vector<cudnnBackendNumericalNote_t> notes;
  bool has_plan = true;        ///< or it refuses to be planned
  bool pads_unequally = true;  ///< or it refuses padding that is not the same on both sides
  std::int64_t workspace_bytes = 0;
  double error = 0;    ///< added to all results
  bool fails = false;  ///< when it is run
};
inline std::vector<Engine> of_mode_a{{}};
inline std::vector<Engine> of_fallback{};

/// Whether a graph may pad more on one side than on the other, or is refused at once.
inline bool takes_unequal_padding = true;

/// Operations so far whose sizes do not belong together.
inline int mismatches = 0;

/// Which engine has run last, counted through both lists; -1 before.
inline int last_engine = -1;

/// Descriptors and handles that are there; plans made and products run so far.
inline int alive = 0;
inline int plans = 0;
inline int runs = 0;

/// Plans that are there and have run while a stream was captured: a graph may use what they hold.
inline int captured_plans = 0;

/// A count that what the stand-in itself takes from the heap is not to change; null for none.
inline std::size_t* allocations = nullptr;

/// Calls until one fails with `failure`; negative: none does.
inline int calls_until_failure = -1;
inline cudnnStatus_t failure = CUDNN_STATUS_INTERNAL_ERROR;

}  // namespace cudnn_stand_in
