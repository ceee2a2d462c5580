// Communicators and dtypes that a Context cannot have; the error says what a communicator needs.
// Functions of a rank that take another communicator.

#include <concepts>
#include <span>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/collectives.hpp"
#include "shardwise/comm/thread_mesh.hpp"
#include "shardwise/model/context.hpp"

using namespace shardwise;

namespace {

using Counts = std::span<const std::size_t>;

/// A communicator all of whose members can be taken away; it does nothing.
struct Mine {
#if CASE == 1  // expect: The communicator C lacks `int rank\(\) const`
#else
  int rank() const { return 0; }
#endif
  int size() const { return 1; }
#if CASE == 2  // expect: C is no communicator: it lacks an operation
#else
  template <class T>
  void all_reduce(std::span<const T>, std::span<T>, Reduction = Reduction::sum) {}
#endif
#if CASE == 3  // expect: C is no communicator: it lacks an operation
#else
  template <class T>
  void all_gather(std::span<const T>, std::span<T>, Counts) {}
#endif
#if CASE == 4  // expect: C is no communicator: it lacks an operation
  template <class T>
  void reduce_scatter(std::span<const T>, std::span<T>, Counts) {}
#else
  template <class T>
  void reduce_scatter(std::span<const T>, std::span<T>, Counts, Reduction = Reduction::sum) {}
#endif
  template <class T>
  void broadcast(std::span<T>, int) {}
  template <class T>
  void gather(std::span<const T>, std::span<T>, Counts, int) {}
  template <class T>
  void scatter(std::span<const T>, std::span<T>, Counts, int) {}
#if CASE == 5  // expect: C is no communicator.*Derive it from Collectives<C>
  template <std::floating_point T>
  void all_to_all(std::span<const T>, Counts, std::span<T>, Counts) {}
#else
  template <class T>
  void all_to_all(std::span<const T>, Counts, std::span<T>, Counts) {}
#endif
  template <class T>
  void send(std::span<const T>, int, int = 0) {}
  template <class T>
  void receive(std::span<T>, int, int = 0) {}
  void barrier() {}
#if CASE == 6  // expect: The communicator C lacks .* or `C split\(int color, int key\)`
#else
  Mine split(int, int) { return {}; }
#endif
};

/// A communicator by Collectives, one of whose moves can be taken away.
struct Mover : Collectives<Mover> {
  static int rank() { return 0; }
  static int size() { return 1; }
#if CASE == 8  // expect: The communicator Self lacks `void move\(const Call&, const Move&\)`
#else
  template <class T>
  void move(const Call&, const moves::AllReduce<T>&) {}
#endif
  void move(const Call&, const moves::Barrier&) {}
};

#if CASE == 7  // expect: P is no number type that layers compute in
using Number = int;
#else
using Number = float;
#endif

}  // namespace

#if CASE == 9  // expect: C is a backend, where a Context names its communicator
using Ctx = Context<Number, Mine, Reference>;
#elif CASE == 12  // expect: C is no communicator.*Derive it from Collectives<C>
using Ctx = Context<Number, Reference, int>;
#else
using Ctx = Context<Number, Reference, Mine>;
#endif
constexpr std::size_t bytes = sizeof(Ctx::dtype);

#if CASE == 10  // expect: each rank calls f\(C&\), and F is no function that takes one
inline void start() {
  run_ranks(2, [](Mine&) {});
}
#elif CASE == 11  // expect: each rank calls f\(C&\), and F is no function that takes one
inline void start() {
  run_mesh({.data = 2}, [](Mine&) {});
}
#else
inline void start() {
  run_ranks(2, [](ThreadCommunicator&) {});
  run_mesh({.data = 2}, [](MeshRanks<ThreadCommunicator>&) {});
}
#endif

inline void call(std::span<float> data) { Mover().all_reduce<float>(data, data); }
