#pragma once
// Runs a model on ranks and writes down what it did: whole tensors, put together from what the
// ranks hold without the library's redistributions, and the calls that passed below them.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/testing/calls.hpp"
#include "support/oracle.hpp"
#include "support/ranks.hpp"
#include "witness/formula.hpp"

namespace testing {

using Counted = shardwise::CountingCommunicator<Ranks>;
using Whole = std::vector<double>;  ///< a global tensor

/// What a model did, by the name of the tensor or of the part of a step.
struct Observed {
  std::map<std::string, Whole> tensors;
  std::map<std::string, std::vector<std::vector<shardwise::CountedCall>>> calls;  ///< by rank
  std::vector<std::size_t> values;  ///< parameter elements allocated, by rank
  shardwise::Plan plan;
  bool copies_are_equal = true;  ///< of what is Invariant or Replicated, bit by bit

  const Whole& operator[](const std::string& name) const { return tensors.at(name); }
};

/// Collects from all ranks.
class Recorder {
 public:
  explicit Recorder(int ranks) : ranks_(ranks) {
    observed_.values.resize(static_cast<std::size_t>(ranks));
  }

  template <class T, shardwise::Layout L>
  void put(const std::string& name, const shardwise::View<T, L>& mine) {
    const std::scoped_lock lock(mutex_);
    const Whole local(mine.data(), mine.data() + mine.size());
    tell(mine.place(), local, [&](int rank, const Whole& part) {
      put_part(name, meaning_of<L>(), mine.global(), static_cast<std::size_t>(rank), part);
    });
  }

  /// Several, of which number k above 0 has the name "name.k".
  template <class... Views>
  void put(const std::string& name, const std::tuple<Views...>& mine) {
    std::size_t k = 0;
    std::apply(
        [&](const auto&... one) {
          ((put(k == 0 ? name : name + '.' + std::to_string(k), one), ++k), ...);
        },
        mine);
  }
  void put(const std::string&, shardwise::Nothing) {}

  template <class C>
  void put_calls(const std::string& part, C& ranks) {
    if constexpr (requires { ranks.log(); }) {
      using Calls = std::vector<shardwise::CountedCall>;
      const std::scoped_lock lock(mutex_);
      auto& calls = observed_.calls[part];
      calls.resize(static_cast<std::size_t>(ranks_));
      tell(place_of(ranks), Calls(ranks.log().begin(), ranks.log().end()),
           [&](int rank, const Calls& made) { calls[static_cast<std::size_t>(rank)] = made; });
      ranks.clear();
    }
  }

  /// How many parameter elements a rank holds.
  void put_values(Place place, std::size_t count) {
    const std::scoped_lock lock(mutex_);
    tell(place, std::vector{count}, [&](int rank, const std::vector<std::size_t>& told) {
      observed_.values[static_cast<std::size_t>(rank)] = told[0];
    });
  }

  template <class F>
  void with(F&& f) {
    const std::scoped_lock lock(mutex_);
    f(observed_);
  }

  Observed take() { return std::move(observed_); }

 private:
  void put_part(const std::string& name, const Meaning& layout, const Shape& shape,
                std::size_t rank, const Whole& part) {
    const auto [place, is_first] = observed_.tensors.try_emplace(name);
    Whole& whole = place->second;
    if (layout.kind == Meaning::Kind::block) {
      const auto owner = owners(shape, layout.axis, ranks_);
      whole.resize(owner.size());
      std::size_t next = 0;
      for (std::size_t i = 0; i < owner.size(); ++i)
        if (owner[i] == rank) whole[i] = part.at(next++);
      if (next != part.size()) observed_.copies_are_equal = false;
    } else if (layout.kind == Meaning::Kind::sum) {
      whole.resize(part.size());
      for (std::size_t i = 0; i < part.size(); ++i) whole[i] += part[i];
    } else if (is_first) {
      whole = part;
    } else if (whole != part) {
      observed_.copies_are_equal = false;
    }
  }

  int ranks_;
  std::mutex mutex_;
  Observed observed_;
};

enum class Data { integers, reals };

/// Element `i` of tensor `number`: an integer in [-2, 2], or a multiple of 1/1024 in (-1, 1).
inline double element(Data data, std::uint64_t number, std::size_t i) {
  if (data == Data::reals)
    return witness::made(static_cast<std::int64_t>(number), static_cast<std::int64_t>(i));
  return static_cast<double>(static_cast<int>(small_integer(number, i)) % 3);
}

inline Whole elements(Data data, std::uint64_t number, std::size_t count) {
  Whole whole(count);
  for (std::size_t i = 0; i < count; ++i) whole[i] = element(data, number, i);
  return whole;
}

/// A rank's part of `whole`. Summands are all on one rank, for each element the next one.
template <class T, shardwise::Layout L>
shardwise::Tensor<T, L> part_of(const Whole& whole, const Shape& shape, Place place) {
  shardwise::Tensor<T, L> part(shape, place);
  std::vector<std::size_t> owner(whole.size(), static_cast<std::size_t>(place.rank));
  if constexpr (shardwise::ShardedLayout<L>) owner = owners(shape, L::axis, place.size);
  if constexpr (std::same_as<L, shardwise::Partial>)
    for (std::size_t i = 0; i < owner.size(); ++i)
      owner[i] = i % static_cast<std::size_t>(place.size);
  std::size_t next = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (owner[i] == static_cast<std::size_t>(place.rank))
      part[next++] = static_cast<T>(static_cast<shardwise::accumulate_t<T>>(whole[i]));
    else if (std::same_as<L, shardwise::Partial>)
      part[next++] = T{};
  }
  return part;
}

/// A rank's part of each tensor of an end of a model, of which number k is made from
/// number + 1000 k.
template <class T, shardwise::EndLayout L, std::size_t N = shardwise::detail::tensors_of<L>>
auto parts_of(Data data, std::uint64_t number, const std::array<Shape, N>& shapes, Place place) {
  return [&]<std::size_t... Ks>(std::index_sequence<Ks...>) {
    return std::tuple{part_of<T, shardwise::detail::nth_layout_t<L, Ks>>(
        elements(data, number + 1000 * Ks, shapes[Ks].elements()), shapes[Ks], place)...};
  }
  (std::make_index_sequence<N>{});
}

/// What a model takes of them: a view, or a tuple of several.
template <class... Tensors>
auto views_of(const std::tuple<Tensors...>& tensors) {
  if constexpr (sizeof...(Tensors) == 1) {
    return std::get<0>(tensors).view();
  } else {
    return std::apply([](const auto&... one) { return std::tuple{one.view()...}; }, tensors);
  }
}

// What the tensors of a run are made from.
inline std::uint64_t number_of_input(int pass) { return 10 + static_cast<std::uint64_t>(pass); }
inline std::uint64_t number_of_output_gradient(int pass) {
  return 20 + static_cast<std::uint64_t>(pass);
}
inline std::uint64_t number_of_parameter(std::size_t i) { return 30 + i; }

struct Workload {
  Shape in;
  Data data = Data::integers;
  int passes = 1;  ///< forward and backward, before gradients are settled
  int steps = 1;   ///< only the last one is written down
  std::vector<Shape> more_inputs{};
};

/// Sets all parameters to made-up values, in model order.
template <class M>
void set_parameters(M& model, Data data) {
  using T = typename M::dtype;
  std::vector<std::pair<std::string, Shape>> parameters;
  model.visit_parameters([&](auto& p) { parameters.emplace_back(p.name, p.spec.shape); });
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, shape] = parameters[i];
    const Whole whole = elements(data, number_of_parameter(i), shape.elements());
    auto tensor = part_of<T, shardwise::Invariant>(whole, shape, place_of(model.ranks()));
    model.set(name, tensor.view());
  }
}

/// The shapes of as many inputs as L is for.
template <shardwise::EndLayout L, std::size_t N = shardwise::detail::tensors_of<L>>
std::array<Shape, N> input_shapes(const Workload& work) {
  std::array<Shape, N> shapes{work.in};
  for (std::size_t k = 1; k < N; ++k) shapes[k] = work.more_inputs.at(k - 1);
  return shapes;
}

///@{
/// The shapes as a model takes them.
inline const Shape& for_model(const std::array<Shape, 1>& shapes) { return shapes[0]; }
template <std::size_t N>
const std::array<Shape, N>& for_model(const std::array<Shape, N>& shapes) {
  return shapes;
}
///@}

/// Steps of a model on one rank.
template <class Architecture, class T, class E, class Use, class B, class C>
void run_model(const Architecture& architecture, C& ranks, const Workload& work,
               Recorder& recorder) {
  using namespace shardwise;
  const auto shapes = input_shapes<typename E::offered>(work);
  const auto& in = for_model(shapes);
  Model<Architecture, Context<T, B, C>, E, Use> model(architecture, ranks, Seed{5}, in);
  set_parameters(model, work.data);
  recorder.put_calls("set", ranks);
  recorder.with([&](Observed& o) { o.plan = model.plan(in); });
  recorder.put_values(place_of(ranks), model.values().size());
  const auto x_of = [&](int pass) {
    return parts_of<T, typename E::offered>(work.data, number_of_input(pass), shapes,
                                            place_of(ranks));
  };
  for (int step = 1; step <= work.steps; ++step) {
    const bool last = step == work.steps;
    for (int pass = 0; pass < work.passes; ++pass) {
      const std::string number = std::to_string(pass);
      const auto x = x_of(pass);
      if constexpr (!Use::trains) {
        recorder.put("output " + number, model.evaluate(views_of(x)));
        recorder.put_calls("forward " + number, ranks);
      } else {
        const auto y = model.forward(views_of(x));
        recorder.put_calls("forward " + number, ranks);
        if (last) recorder.put("output " + number, y);
        const auto dy = parts_of<T, detail::duals_t<typename E::wanted>>(
            work.data, number_of_output_gradient(pass), detail::global_shapes(y), place_of(ranks));
        if constexpr (Use::input_gradient) {
          const auto dx = model.backward(views_of(dy));
          if (last) recorder.put("input gradient " + number, dx);
        } else {
          model.backward(views_of(dy));
        }
        recorder.put_calls("backward " + number, ranks);
      }
    }
    if constexpr (Use::trains) {
      model.settle_gradients();
      recorder.put_calls("settle", ranks);
    }
    if (!last) model.next_step();
  }
  model.visit_parameters([&](auto& p) {
    recorder.put(p.name, p.value);
    if constexpr (Use::trains) recorder.put(p.name + " gradient", p.gradient);
  });
  const auto x = x_of(0);
  recorder.put("evaluated", model.evaluate(views_of(x)));
}

/// Calls f(communicator) on every rank.
template <class C, class F>
void on_ranks(int ranks, F&& f) {
  using namespace shardwise;
  if constexpr (std::same_as<C, SingleRank>) {
    SingleRank alone;
    f(alone);
  } else {
    testing::run_on_ranks(ranks, [&](Ranks& inner) {
      C communicator(inner);
      f(communicator);
    });
  }
}

template <class Architecture, class T, class C, class E, class Use, class B = shardwise::Reference>
Observed observe(const Architecture& architecture, int ranks, const Workload& work) {
  Recorder recorder(ranks);
  on_ranks<C>(ranks, [&](C& communicator) {
    run_model<Architecture, T, E, Use, B>(architecture, communicator, work, recorder);
  });
  return recorder.take();
}

/// Where the calls of a part of a step are others than planned; empty if they are those.
inline std::string difference(const std::string& part, const shardwise::CollectiveList& planned,
                              const std::vector<std::vector<shardwise::CountedCall>>& calls) {
  std::vector<shardwise::CountedCall> together = calls[0];
  for (std::size_t r = 1; r < calls.size(); ++r) {
    if (calls[r].size() != together.size())
      return part + ": rank " + std::to_string(r) + " makes " + std::to_string(calls[r].size()) +
             " calls, rank 0 " + std::to_string(together.size()) + "; ";
    for (std::size_t i = 0; i < together.size(); ++i) {
      if (calls[r][i].operation != together[i].operation || calls[r][i].dtype != together[i].dtype)
        return part + ": rank " + std::to_string(r) + " calls " + to_string(calls[r][i]) + "; ";
      together[i].elements += calls[r][i].elements;
    }
  }
  const auto plan = shardwise::planned_calls<Ranks>(planned, static_cast<int>(calls.size()));
  const std::string found = shardwise::difference_from_plan(part, plan, together);
  return found.empty() ? found : found + "; ";
}

/// The same for a whole run.
inline std::string difference_from_plan(const Observed& observed) {
  std::string found;
  for (const auto& [part, calls] : observed.calls) {
    if (part.starts_with("forward")) found += difference(part, observed.plan.forward, calls);
    if (part.starts_with("backward")) found += difference(part, observed.plan.backward, calls);
    if (part == "settle") found += difference(part, observed.plan.settle, calls);
    if (part == "set") found += difference(part, {}, calls);
  }
  return found;
}

}  // namespace testing
