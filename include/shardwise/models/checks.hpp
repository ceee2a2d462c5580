#pragma once
// Checks that models of several families make.

#include <cstddef>
#include <string>

#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// Throws argument_error unless each head has the same number of features.
constexpr void require_heads(const char* model, std::size_t features, std::size_t heads) {
  if (heads > 0 && features % heads == 0) return;
  throw argument_error({model, ": ", features, " features do not divide over ", heads,
                        " heads; give a divisor of the features"});
}

/// Throws argument_error unless the same number of query heads reads each key head.
inline void require_groups(const char* model, std::size_t heads, std::size_t groups) {
  if (groups > 0 && heads % groups == 0) return;
  throw argument_error({model, ": ", heads, " query heads do not divide over ", groups,
                        " key heads; give a divisor of the query heads"});
}

/// Throws argument_error unless the form of a model's type is that of its config, both as text.
inline void require_form(const char* model, const std::string& type, const std::string& config) {
  if (type == config) return;
  throw argument_error({model, ": the type has the ", type, ", but this model needs the ", config});
}

/// "true" or "false".
inline const char* flag_text(bool set) { return set ? "true" : "false"; }

}  // namespace shardwise::detail
