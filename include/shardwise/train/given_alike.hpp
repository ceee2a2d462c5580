#pragma once
// Fingerprints of what all ranks must be given alike for a step: the model, and the batch as far as
// it is not split. Ranks compare them with the first call of the step.

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "shardwise/comm/check_level.hpp"
#include "shardwise/comm/mark.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layout/layout.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/values.hpp"

namespace shardwise::detail {

/// The bits of element i, with i.
template <class T>
struct BitsAt {
  const T* elements;

  constexpr std::uint32_t operator()(std::size_t i) const {
    const auto place = static_cast<std::uint32_t>(i);
    if constexpr (sizeof(T) == 8) {
      const auto bits = std::bit_cast<std::uint64_t>(elements[i]);
      return mixed(mixed_halves(bits), place);
    } else {
      using Bits =
          std::conditional_t<sizeof(T) == 4, std::uint32_t,
                             std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>;
      return mixed(std::bit_cast<Bits>(elements[i]), place);
    }
  }
};

/// The ranks that must be given something alike.
enum class AlikeOn : std::uint8_t {
  all_ranks,
  layer_ranks  ///< those that share the layers: on a mesh the ranks along `tensor`
};

/// A View or a Tensor that these ranks must be given alike; what is split over them may differ.
template <class Given, AlikeOn Ranks = AlikeOn::layer_ranks>
concept GivenWhole = requires {
  typename Given::value_type;
  requires Ranks == AlikeOn::layer_ranks || PlainLayout<typename Given::layout>;
  requires std::same_as<along_t<typename Given::layout, MeshAxis::tensor>, Invariant> ||
      std::same_as<along_t<typename Given::layout, MeshAxis::tensor>, Replicated>;
};

/// A number of the elements of a View or a Tensor that this rank holds, computed where they are; 0
/// for no memory, and for what the backend does not reach, which the model refuses.
template <class Context, class Held>
std::uint32_t fingerprint_of_held(Run<Context>& run, const Held& held) {
  const auto* data = held.data();
  if (data == nullptr) return 0;
  if constexpr (DeviceBackend<typename Context::backend>) {
    if (held.size() == 0 || !run.backend.reaches(data)) return 0;
  }
  return reduced(run.backend, run.pool, held.size(), std::uint32_t{0},
                 BitsAt<typename Held::value_type>{data}, Plus{});
}

/// That number of a tensor that these ranks are given whole; 0 for anything else.
template <AlikeOn Ranks = AlikeOn::layer_ranks, class Context, class Given>
std::uint32_t fingerprint(Run<Context>& run, const Given& given) {
  if constexpr (GivenWhole<Given, Ranks>) {
    return fingerprint_of_held(run, given);
  } else {
    return 0;
  }
}

/// Of one tensor, or of a std::tuple of them; 0 if none has a fingerprint.
template <AlikeOn Ranks = AlikeOn::layer_ranks, class Context, class Tensors>
std::uint32_t fingerprint_of(Run<Context>& run, const Tensors& tensors) {
  return with_tensors(tensors, [&](const auto&... each) {
    std::uint32_t all = 0;
    ((all = all * 31 + fingerprint<Ranks>(run, each)), ...);
    return all;
  });
}

/// Whether the ranks compare their calls, and in this step also what they were given.
template <class Context>
bool compares_given(Run<Context>& run) {
  return run.all_ranks.size() > 1 && compares_calls(run.all_ranks) &&
         run.compared_steps.has(run.step.number);
}

/// Notes what this rank was given for a batch, so that the calls of the batch compare it.
template <class M, class Target>
[[gnu::cold]] void note_given(M& model, const typename M::input_view& x, const Target& target) {
  auto& run = model.run();
  const GivenOptions* options =
      run.step.under_way == nullptr ? nullptr : &run.step.under_way->options;
  run.step.given = {.seed = mixed_halves(run.seed.value),
                    .model = model.fingerprint(),
                    .inputs = fingerprint_of(run, x),
                    .targets = fingerprint_of(run, target),
                    .options = options == nullptr ? 0 : options->hash(),
                    .all_options = options};
  run.step.given_to_all = run.step.given;
  if constexpr (MeshCommunicator<typename M::communicator>) {
    run.step.given_to_all.inputs = fingerprint_of<AlikeOn::all_ranks>(run, x);
    run.step.given_to_all.targets = fingerprint_of<AlikeOn::all_ranks>(run, target);
  }
}

}  // namespace shardwise::detail
