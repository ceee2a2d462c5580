#pragma once
// A Sequential that runs.

#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

#include "shardwise/core/error.hpp"
#include "shardwise/model/bound.hpp"
#include "shardwise/model/fusion.hpp"
#include "shardwise/model/parameter.hpp"
#include "shardwise/model/sequential.hpp"

namespace shardwise {

namespace detail {

/// Which layer of a Sequential is at work, for the place of an error that passes.
template <class L>
struct Position {
  std::size_t number = 0;

  void add_to(error& e) const { add(e, std::make_index_sequence<L::size>{}); }

 private:
  template <std::size_t... Is>
  void add(error& e, std::index_sequence<Is...>) const {
    using Name = std::string (*)();
    static constexpr Name names[] = {name_of<typename L::template layer_type<Is>>...};
    static constexpr bool compositions[] = {IsComposition<typename L::template layer_type<Is>>...};
    e.add_place(sentence({number, ": ", names[number]()}), compositions[number] ? " / " : ": ");
  }
};

/// Makes a call for layer I of the Sequential L, and tells the observer of it.
template <std::size_t I, class L, class Context, class Call>
decltype(auto) at_layer(Run<Context>& run, Position<L>& at, Call&& call) {
  at.number = I;
  const Observation here(run.observer, [] {
    return Work{Work::Kind::part, name_of<typename L::template layer_type<I>>, I, {}};
  });
  return call();
}

template <std::size_t I, class B>
struct NumberedBound {
  B bound;
};

template <class L, class S, class E, class Indices>
struct BoundLayers;
template <class L, class S, class E, std::size_t... Is>
struct BoundLayers<L, S, E, std::index_sequence<Is...>>
    : NumberedBound<Is, typename Fusion<L, S, E, Is>::type>... {
  /// `shape` is what a layer gets; bases are made in their order, so it can go from one to the
  /// next.
  BoundLayers(const L& layers, Shape shape, Binder<typename S::context>& binder, Position<L>& at)
      : NumberedBound<Is, typename Fusion<L, S, E, Is>::type>{
            bind<Is>(layers, shape, binder, at)}... {}

 private:
  template <std::size_t I>
  static auto bind(const L& layers, Shape& shape, Binder<typename S::context>& binder,
                   Position<L>& at) {
    using Layer = typename L::template layer_type<I>;
    using B = typename Fusion<L, S, E, I>::type;
    return at_layer<I>(binder.run, at, [&] {
      // Asked of what runs, whose code is there once for all sizes.
      if constexpr (I > 0) shape = as_dynamic(layers.template layer<I - 1>()).output_shape(shape);
      const Layer& layer = layers.template layer<I>();
      if constexpr (IsComposition<Layer>) {
        return B(layer, shape, binder);
      } else {
        return B(as_dynamic(layer), shape, binder, name_of<Layer>);
      }
    });
  }
};

}  // namespace detail

template <class L, class S, class E>
requires requires { typename L::composition; }
class Bound<L, S, E> {
  using Ctx = typename S::context;
  using T = typename Ctx::dtype;
  using Layers = detail::BoundLayers<L, S, E, std::make_index_sequence<L::size>>;

  template <std::size_t I>
  using At = detail::Fusion<L, S, E, I>;
  template <std::size_t I>
  using layer_type = typename L::template layer_type<I>;
  using Position = detail::Position<L>;

 public:
  Bound(const L& layers, const Shape& in, Binder<Ctx>& binder)
      : layers_(placed([&](Position& at) { return Layers(layers, in, binder, at); })) {}

  auto forward(Run<Ctx>& run, Value<T, typename E::offered>&& x) {
    return placed([&](Position& at) { return forward_from<0>(run, std::move(x), at); });
  }

  auto backward(Run<Ctx>& run, Value<T, dual_t<gives_t<L, E>>>&& dy) {
    return placed([&](Position& at) { return backward_from<L::size - 1>(run, std::move(dy), at); });
  }

  template <class Visitor>
  void visit_parameters(Run<Ctx>& run, const std::string& path, Visitor&& f) {
    visit(run, path, f, std::make_index_sequence<L::size>{});
  }

  template <class Visitor>
  void visit_buffers(const std::string& path, Visitor&& f) {
    buffers(path, f, std::make_index_sequence<L::size>{});
  }

  void forget() { forget(std::make_index_sequence<L::size>{}); }

 private:
  template <std::size_t I>
  auto& bound() {
    return static_cast<detail::NumberedBound<I, typename At<I>::type>&>(layers_).bound;
  }

  /// Adds the layer at work to the place of an error that passes.
  template <class Call>
  static auto placed(Call&& call) {
    Position at;
    try {
      return call(at);
    } catch (error& e) {
      at.add_to(e);
      throw;
    }
  }

  template <std::size_t I, Layout X>
  auto forward_from(Run<Ctx>& run, Value<T, X>&& x, Position& at) {
    if constexpr (I == L::size) {
      return std::move(x);
    } else if constexpr (At<I>::fused() == Activation::none) {
      auto y = detail::at_layer<I>(run, at, [&] { return bound<I>().forward(run, std::move(x)); });
      return forward_from<I + 1>(run, std::move(y), at);
    } else if constexpr (At<I>::gives_z) {
      Value<T, gives_t<layer_type<I>, typename At<I>::Here>> z;
      auto y =
          detail::at_layer<I>(run, at, [&] { return bound<I>().forward(run, std::move(x), z); });
      bound<I + 1>().adopt(run, y, std::move(z));
      return forward_from<I + 2>(run, std::move(y), at);
    } else {
      auto y = detail::at_layer<I>(run, at, [&] { return bound<I>().forward(run, std::move(x)); });
      bound<I + 1>().adopt(run, y);
      return forward_from<I + 2>(run, std::move(y), at);
    }
  }

  /// With `SlopeDone`, dy is multiplied by the slope of layer I already.
  template <std::size_t I, bool SlopeDone = false, Layout DY>
  input_gradient_t<T, E, S> backward_from(Run<Ctx>& run, Value<T, DY>&& dy, Position& at) {
    if constexpr (!goes_backward<layer_type<I>, typename At<I>::Use, typename At<I>::Here>) {
      return {};
    } else {
      auto dx = detail::at_layer<I>(run, at, [&] {
        if constexpr (SlopeDone) {
          return bound<I>().skip_backward(run, std::move(dy));
        } else if constexpr (At<I>::takes_slope) {
          const auto z = bound<I - 1>().take_saved();
          return bound<I>().backward(run, std::move(dy), layer_type<I - 1>::activation,
                                     z.view().data());
        } else {
          return bound<I>().backward(run, std::move(dy));
        }
      });
      if constexpr (I == 0 || std::same_as<decltype(dx), Nothing>) {
        return dx;
      } else {
        return backward_from<I - 1, At<I>::takes_slope>(run, std::move(dx), at);
      }
    }
  }

  template <class Visitor, std::size_t... Is>
  void visit(Run<Ctx>& run, const std::string& path, Visitor&& f, std::index_sequence<Is...>) {
    (bound<Is>().visit_parameters(run, detail::path_of_part(path, Is), f), ...);
  }

  template <class Visitor, std::size_t... Is>
  void buffers(const std::string& path, Visitor&& f, std::index_sequence<Is...>) {
    (bound<Is>().visit_buffers(detail::path_of_part(path, Is), f), ...);
  }

  template <std::size_t... Is>
  void forget(std::index_sequence<Is...>) {
    (bound<Is>().forget(), ...);
  }

  Layers layers_;
};

}  // namespace shardwise
