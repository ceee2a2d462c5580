#pragma once
// What the forward of one batch leaves for its backward. It is not in the layers, so several
// batches can be under way in one model.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "shardwise/comm/mark.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/growing_list.hpp"
#include "shardwise/core/location.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/model/mesh_slice.hpp"
#include "shardwise/model/sequence_table.hpp"
#include "shardwise/model/value.hpp"

namespace shardwise {

/// One of the places in a model for a batch between its forward and its backward, counted from 0;
/// see `Model::reserve_flights`.
struct Flight {
  std::size_t number = 0;  ///< below the number of flights that the model has
};

namespace detail {

/// What a layer itself saves of a batch, see `saved` of Layer; of a type that only the layer knows.
class SavedByLayer {
 public:
  SavedByLayer() = default;
  SavedByLayer(const SavedByLayer&) = delete;
  SavedByLayer& operator=(const SavedByLayer&) = delete;
  virtual ~SavedByLayer() = default;

  /// Releases its memory.
  virtual void forget() = 0;
  /// An empty one of the same type.
  virtual std::unique_ptr<SavedByLayer> another() const = 0;
};

template <class T>
struct SavedAs final : SavedByLayer {
  T object{};

  void forget() override { object = T{}; }
  std::unique_ptr<SavedByLayer> another() const override { return std::make_unique<SavedAs>(); }
};

/// Gradients of parameters that layers leave for later, in the order in which they go backward.
class LeftGradients {
 public:
  /// Those of a layer: `write(bound, run)` writes them. It stays where it is until then.
  struct One {
    void* bound = nullptr;
    void (*write)(void* bound, void* run) = nullptr;
    std::string (*name)() = nullptr;  // of the layer
    Mark place{};                     // where it went backward
    One* next = nullptr;
  };

  void add(One& one);
  bool empty() const { return first_ == nullptr; }
  /// Writes all. An error names the layer.
  void write(void* run);
  void forget() { first_ = nullptr; }

 private:
  One* first_ = nullptr;
  One* last_ = nullptr;  // if it is not empty
};

/// What a layer, or an operand of a merge, leaves for its backward; also an output of the model.
struct SavedByPart {
  Shape in{};                           ///< the global shape of the input, or of the model's output
  SavedValue saved{};                   ///< the input or output, if backward needs it
  std::unique_ptr<SavedByLayer> own{};  ///< null if the layer has no `saved`
  LeftGradients::One left{};            ///< if the layer has left its gradients

  /// The layer's own object.
  template <class T>
  T& own_as() const {
    return static_cast<SavedAs<T>&>(*own).object;
  }

  /// Keeps a value and its shape.
  template <class V>
  void save(const V& value) {
    in = value.global();
    saved.save(value);
  }

  /// Releases the memory.
  void forget() {
    saved.forget();
    if (own != nullptr) own->forget();
  }
};

/// What a model and all its parts save of one batch: its outputs, and what parts save, in model
/// order.
class SavedByParts {
 public:
  SavedByParts() = default;

  /// Adds one more, and returns its number.
  std::size_t add(std::unique_ptr<SavedByLayer> own = {}) {
    all_.add({{}, {}, std::move(own), {}});
    return size() - 1;
  }

  SavedByPart& operator[](std::size_t number) noexcept { return all_[number]; }
  std::size_t size() const noexcept { return all_.size(); }

  /// Releases the memory of those from number `first` to `last`, without the last.
  void forget(std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) all_[i].forget();
  }

  /// As many empty ones of the same types.
  SavedByParts another() const {
    SavedByParts other;
    for (const SavedByPart& one : all_)
      other.add(one.own == nullptr ? nullptr : one.own->another());
    return other;
  }

 private:
  GrowingList<SavedByPart> all_;
};

/// The place of a batch in its step.
struct BatchPlace {
  std::uint64_t first_sample = 0;  ///< samples of the step before this batch
  std::uint16_t number = 0;        ///< batches of the step before this one

  friend constexpr bool operator==(const BatchPlace&, const BatchPlace&) = default;
};

/// A flight of a model.
struct FlightState {
  [[gnu::noinline]] ~FlightState() = default;

  SavedByParts parts{};            ///< the outputs of its batch, and then what the layers save
  SequenceTable sequences{};       ///< of the batch
  BatchPlace place{};              ///< of the batch
  Shape batch{};                   ///< of the batch over all ranks: on a mesh its `sliced_axes`
  BatchPlace behind{};             ///< of a batch behind it
  bool may_go_backward = false;    ///< whether there was a forward and no backward yet
  bool awaits_parameters = false;  ///< whether `backward_parameters` is to come
  LeftGradients left{};            ///< until then

  /// Releases the memory of what it has left for its backward.
  void forget() {
    parts.forget(0, parts.size());
    left.forget();
    may_go_backward = awaits_parameters = false;
  }
};

/// The flights of a model, each of which stays where it is.
class Flights {
 public:
  FlightState& operator[](std::size_t number) noexcept { return *all_[number]; }
  std::size_t size() const noexcept { return all_.size(); }

  /// Adds an empty one.
  FlightState& add() {
    all_.add(std::make_unique<FlightState>());
    return *all_.last();
  }

  /// Whether a batch of another flight than flight 0 went forward and may still go backward.
  bool other_may_go_backward() const {
    for (std::size_t i = 1; i < size(); ++i)
      if (all_[i]->may_go_backward) return true;
    return false;
  }

  /// Discards what all their batches have left.
  void forget() {
    for (const std::unique_ptr<FlightState>& batch : all_) {
      batch->forget();
      batch->place = {};
    }
  }

 private:
  GrowingList<std::unique_ptr<FlightState>> all_;
};

}  // namespace detail

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void LeftGradients::add(One& one) {
  one.place = current_mark;
  one.next = nullptr;
  (empty() ? first_ : last_->next) = &one;
  last_ = &one;
}

SHARDWISE_INLINE void LeftGradients::write(void* run) {
  while (!empty()) {
    const One& one = *first_;
    first_ = one.next;
    const DescribedLocation here([&] {
      return sentence({"gradients left by ", one.name(), " (", place_in_model(one.place), ")"});
    });
    one.write(one.bound, run);
  }
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
