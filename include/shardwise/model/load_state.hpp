#pragma once
// Whether a model has numbers that may be used.

#include <cstdint>
#include <string>
#include <string_view>

#include "shardwise/core/compiled.hpp"
#include "shardwise/model/one_thread.hpp"

namespace shardwise {

template <class Ctx>
class ModelBase;

namespace detail {

/// What a model that has no initial values waits for, or what a load that failed has left of them.
class LoadState {
 public:
  /// throws   argument_error for a model without numbers that may be used, unless a load visits it
  void require_loaded() const {
    if (lack_ != Lack::nothing && !is_visited_by_load) refuse();
  }

  /// The model is one that has no numbers until it is loaded.
  void await() { lack_ = Lack::values; }
  /// A load writes to the model's own memory from now on.
  void begin_overwriting() {
    lack_ = Lack::rest_of_load;
    why_.clear();
  }
  ///@{
  /// A load has ended, or failed for this reason. Behind one that left only some of the numbers,
  /// its reason stays.
  void end() {
    lack_ = Lack::nothing;
    why_.clear();
  }
  void fail(std::string_view why) {
    if (lack_ == Lack::values || (lack_ == Lack::rest_of_load && why_.empty())) why_ = why;
  }
  ///@}

  bool is_visited_by_load = false;  ///< by one that needs to know where the numbers are

 private:
  enum class Lack : std::uint8_t { nothing, values, rest_of_load };

  [[noreturn, gnu::cold]] void refuse() const;

  Lack lack_ = Lack::nothing;
  std::string why_;  // the last load failed
};

/// throws   argument_error for a model that trains and is made to_be_loaded
[[noreturn, gnu::cold]] void refuse_to_be_loaded(std::string (*model)());

/// A call of a model that needs its numbers.
class [[nodiscard]] CallOfLoaded : public OneThread::Call {
 public:
  /// throws   argument_error if the model is in a call of another thread, or has no numbers
  CallOfLoaded(OneThread& one_thread, const LoadState& state) : Call(one_thread) {
    state.require_loaded();
  }
};

/// For loads of the model.
template <class Ctx>
LoadState& load_state_of(ModelBase<Ctx>& model) noexcept;

}  // namespace detail

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

#include "shardwise/core/error.hpp"

namespace shardwise::detail {

SHARDWISE_INLINE void LoadState::refuse() const {
  if (lack_ == Lack::rest_of_load)
    throw argument_error({"this model has only some of the numbers of a load that failed (",
                          why_.empty() ? "it did not end" : why_,
                          "): load it again, or make a new one"});
  if (why_.empty())
    throw argument_error(
        "this model was made to_be_loaded and has no numbers yet: call load_weights before, or "
        "make it without that option");
  throw argument_error(
      {"this model was made to_be_loaded and has no numbers, for its load failed (", why_,
       "): load it again, or make it without that option"});
}

SHARDWISE_INLINE void refuse_to_be_loaded(std::string (*model)()) {
  throw argument_error(
      {model(),
       ": to_be_loaded is for a ForwardOnly model. One that trains has its initial values "
       "until a load has read all of it: leave the option out"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
