// Shards on memory that the host cannot touch take the numbers that the whole has on the host.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/initializer.hpp"
#include "shardwise/layout/tensor.hpp"
#include "support/far.hpp"

using namespace shardwise;
using testing::Far;

namespace {

/// A tensor of ones where the backend's tensors lie.
template <class B, class T, class L>
class Ones {
 public:
  Ones(B& backend, const Shape& shape, Place place)
      : backend_(backend), pool_(detail::memory_of(backend)), view_(nullptr, shape, place) {
    memory_ = pool_.take(view_.size() * sizeof(T));
    view_ = view_.in_memory(static_cast<T*>(memory_.data()));
    detail::fill(backend, view_.data(), view_.size(), T(1));
  }

  View<T, L> view() { return view_; }

  std::vector<T> on_host() {
    std::vector<T> values(view_.size());
    detail::to_host(backend_, view_.data(), view_.size(), values.data());
    return values;
  }

 private:
  B& backend_;
  Pool pool_;
  View<T, L> view_;
  Buffer memory_;
};

/// What dropout sees of a model.
template <class B, class T>
struct Training {
  using dtype = T;

  B& used;
  std::uint64_t samples_before;

  B& backend() { return used; }
  bool training() const { return true; }
  RandomStream random() const { return RandomStream(Seed{7}, 2, 5); }
  template <class V>
  detail::HeldPart held_part(const V& view) const {
    detail::HeldPart part = detail::held_part(view);
    part.samples_before = samples_before;
    return part;
  }
};

/// f(backend, tensor of ones) on the whole on the host, and on every shard of it far away.
template <class T, class L, class F>
void check_shards(const Shape& shape, F&& f) {
  Reference here;
  Ones<Reference, T, Invariant> whole(here, shape, {});
  f(here, whole.view());
  const std::vector<T> all = whole.on_host();
  for (const int ranks : {1, 3, 5}) {
    for (int rank = 0; rank < ranks; ++rank) {
      CAPTURE(ranks);
      CAPTURE(rank);
      Far there;
      Ones<Far, T, L> shard(there, shape, {rank, ranks});
      f(there, shard.view());
      const std::vector<T> mine = shard.on_host();
      bool same = true;
      for_each_global_run(shard.view(), [&](std::size_t global, std::size_t local, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) same &= mine[local + i] == all[global + i];
      });
      CHECK(same);
    }
  }
}

const Shape images{{Axis::batch, 2}, {Axis::channel, 3}, {Axis::height, 7}, {Axis::width, 3}};
const Shape weight{{Axis::output, 7}, {Axis::input, 4, 3}};

template <class L>
void check_masks(std::uint64_t first) {
  check_shards<float, L>(images, [=](auto& backend, auto x) {
    Training<std::remove_reference_t<decltype(backend)>, float> frame{backend, first};
    Dropout<1, 2>{}.forward(frame, x, x);
  });
  check_shards<float, L>(images, [=](auto& backend, auto x) {
    Training<std::remove_reference_t<decltype(backend)>, float> frame{backend, first};
    ChannelDropout<1, 2>{}.forward(frame, x, x);
  });
}

}  // namespace

TEST_CASE("initial values") {
  using Kind = Initializer::Kind;
  for (const Kind kind : {Kind::constant, Kind::uniform, Kind::normal}) {
    const auto fill = [=](auto& backend, auto parameter) {
      detail::initialize(backend, detail::global_runs(parameter), parameter.data(),
                         Initializer{kind, 0.3}, RandomStream(Seed{3}, 1, 0));
    };
    check_shards<double, Sharded<Axis::output>>(weight, fill);
    check_shards<bf16, Sharded<Axis::input>>(weight, fill);
  }
}

TEST_CASE("masks of shards, and of a later batch of a step") {
  check_masks<Sharded<Axis::batch>>(0);
  check_masks<Sharded<Axis::channel>>(126);
  check_masks<Sharded<Axis::width>>(63 * 5);
}
