#pragma once
// Who owns the backend of a model.

#include <memory>

#include "shardwise/version.hpp"

namespace shardwise::detail {

/// The backend of a model: its own, or the caller's.
template <class B>
struct BackendOfModel {
  BackendOfModel() : own(std::make_unique<B>()), used(*own) {}
  explicit BackendOfModel(B& given) : used(given) {}

  std::unique_ptr<B> own{};  ///< null if the caller's is used
  B& used;
};

}  // namespace shardwise::detail
