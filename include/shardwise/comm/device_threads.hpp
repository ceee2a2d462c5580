#pragma once
// Collectives between ranks that are threads of one process and keep their tensors on devices whose
// memory each of them reaches: ranks that share one GPU, or have several with peer access.

#include <concepts>
#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/backend/tensor_memory.hpp"
#include "shardwise/comm/call.hpp"
#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/detail/checks.hpp"
#include "shardwise/comm/detail/device_letter.hpp"
#include "shardwise/comm/detail/device_sums.hpp"
#include "shardwise/comm/detail/quarrel.hpp"
#include "shardwise/comm/thread_communicator.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise {

/// A backend whose work another one can be ordered behind. Besides what DeviceBackend asks for:
///
///     B::Mark mark(backend)     a mark that can be set in the backend's work, again and again
///     mark.set()                after all that the backend was called for so far
///     backend.follow(mark)      what it is called for from now on begins after the mark
///     backend.reach(mark)       its kernels read and write memory of the mark's backend from now
///                               on, or a backend_error says why they cannot
template <class B>
concept OrderedBackend = DeviceBackend<B> && requires(B& backend, typename B::Mark& mark) {
  requires std::constructible_from<typename B::Mark, B&>;
  mark.set();
  backend.follow(std::as_const(mark));
  backend.reach(std::as_const(mark));
};

/// A rank among threads whose collectives take memory of its backend's device, and of no host.
/// Kernels of a rank read the peers' buffers where they lie, in rank order, and nothing goes over
/// the host but who has called what. It keeps the contract of `Communicator`, where "done" means
/// **ordered on the rank's stream**: what the backend is called for after a collective finds its
/// result, and may reuse its buffers. Errors and what ends a job are those of `ThreadCommunicator`.
///
/// What it does otherwise than the contract says: send copies nothing and waits for its receiver,
/// so of two ranks that send to each other one begins with receive; all_to_all does both at once.
///
/// Per rank and for n bytes on each, an all_reduce reads and writes n; everything else copies each
/// element once. In a collective hosts meet before anyone reads a peer's buffer, and before anyone
/// goes on, so that streams wait for each other's marks and hosts never for a device.
template <OrderedBackend B>
class DeviceThreadCommunicator {
  template <class T>
  using In = std::type_identity_t<std::span<const T>>;
  using Counts = std::span<const std::size_t>;

 public:
  /// Its collectives take what lies on the rank's device.
  static constexpr bool takes_device_memory = true;

  /// The rank of `threads`, which computes with `backend`; that outlives it. A collective.
  /// throws  argument_error for more than 32 ranks, backend_error if the backend's kernels cannot
  ///         reach a peer's memory
  DeviceThreadCommunicator(ThreadCommunicator threads, B& backend)
      : threads_(std::move(threads)), backend_(&backend), state_(make_state()) {}

  ///@{
  /// As `Communicator` says.
  int rank() const { return threads_.rank(); }
  int size() const { return threads_.size(); }

  template <Element T>
  void all_reduce(In<T> in, std::span<T> out, Reduction reduction = Reduction::sum);
  template <Element T>
  void all_gather(In<T> in, std::span<T> out, Counts counts);
  template <Element T>
  void reduce_scatter(In<T> in, std::span<T> out, Counts counts,
                      Reduction reduction = Reduction::sum);
  template <Element T>
  void broadcast(std::span<T> data, int root);
  template <Element T>
  void gather(In<T> in, std::span<T> out, Counts counts, int root);
  template <Element T>
  void scatter(In<T> in, std::span<T> out, Counts counts, int root);
  template <Element T>
  void all_to_all(In<T> in, Counts sent, std::span<T> out, Counts received);
  template <Element T>
  void send(std::span<const T> data, int to, int tag = 0);
  template <Element T>
  void receive(std::span<T> data, int from, int tag = 0);
  void barrier() { threads_.barrier(); }
  DeviceThreadCommunicator split(int color, int key) {
    return {threads_.split(color, key), *backend_};
  }
  ///@}

 private:
  using Mark = typename B::Mark;

  /// What a rank shows the others.
  struct Card {
    const void* in = nullptr;
    void* out = nullptr;
    const std::size_t* sent = nullptr;  // of an all_to_all, memory of the host
    const std::size_t* received = nullptr;
  };

  /// Every rank holds those of all, since it may look at them when their owner has gone.
  struct Marks {
    explicit Marks(B& backend) : ready(backend), done(backend) {}
    Mark ready;  // when the rank's buffers may be read and written
    Mark done;   // when it has read and written those of others
  };

  struct State {
    explicit State(std::size_t ranks) : marks(ranks), cards(ranks) {}
    std::vector<std::shared_ptr<Marks>> marks;  // of all ranks
    std::vector<Card> cards;                    // of all ranks, in the call that is under way
  };

  std::shared_ptr<State> make_state() {
    detail::require_few_ranks(size());
    auto state = std::make_shared<State>(index(size()));
    const auto mine = std::make_shared<Marks>(*backend_);
    threads_.together(Call{Operation::split}, mine,
                      [&](std::span<const std::shared_ptr<Marks>* const> all) noexcept {
                        for (std::size_t r = 0; r < all.size(); ++r) state->marks[r] = *all[r];
                      });
    for (const auto& peer : state->marks)
      if (peer != mine) backend_->reach(peer->ready);
    return state;
  }

  Marks& marks_of(int rank) const { return *state_->marks[index(rank)]; }

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  /// Shows `mine` to all ranks, calls run() when every rank's buffers may be used, and orders what
  /// follows behind what the others do in theirs: also when run() throws, so that nobody's memory
  /// goes while another rank's work is to read it.
  template <class Run>
  void exchange(const Call& call, const Card& mine, Run&& run) {
    marks_of(rank()).ready.set();
    std::exception_ptr failure;
    const auto attempt = [&](auto&& work) noexcept {
      try {
        work();
      } catch (...) {
        failure = std::current_exception();
      }
    };
    threads_.together(call, mine, [&](std::span<const Card* const> all) noexcept {
      for (std::size_t r = 0; r < all.size(); ++r) state_->cards[r] = *all[r];
      attempt([&] {
        follow_peers(&Marks::ready);
        run();
      });
      attempt([&] { marks_of(rank()).done.set(); });
    });
    follow_peers(&Marks::done);
    if (failure) std::rethrow_exception(failure);
  }

  void follow_peers(Mark Marks::*mark) {
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank()) backend_->follow(marks_of(peer).*mark);
  }

  template <class T>
  const T* in_of(std::size_t rank) const {
    return static_cast<const T*>(state_->cards[rank].in);
  }

  template <class T>
  detail::PeerPointers<const T> inputs(std::size_t first) const {
    detail::PeerPointers<const T> all;
    for (std::size_t r = 0; r < state_->cards.size(); ++r) all.add(in_of<T>(r) + first);
    return all;
  }

  template <class T>
  detail::PeerPointers<T> outputs(std::size_t first) const {
    detail::PeerPointers<T> all;
    for (const Card& card : state_->cards) all.add(static_cast<T*>(card.out) + first);
    return all;
  }

  template <class T>
  void copy(const T* from, std::span<T> to) {
    if (!to.empty()) detail::copy(*backend_, from, to.size(), to.data());
  }

  template <class T>
  void collect(Counts counts, std::span<T> out) {
    for (std::size_t r = 0, begin = 0; r < counts.size(); begin += counts[r++])
      copy(in_of<T>(r), out.subspan(begin, counts[r]));
  }

  ThreadCommunicator threads_;
  B* backend_;
  std::shared_ptr<State> state_;
};

template <OrderedBackend B>
template <Element T>
void DeviceThreadCommunicator<B>::all_reduce(In<T> in, std::span<T> out, Reduction reduction) {
  detail::check_all_reduce<T>(in, out);
  const Call call{.operation = Operation::all_reduce,
                  .dtype = dtype_v<T>,
                  .reduction = reduction,
                  .elements = in.size()};
  // Every rank reduces its share into everybody's output.
  exchange(call, {.in = in.data(), .out = out.data()}, [&] {
    const std::size_t first = in.size() * index(rank()) / index(size());
    const std::size_t end = in.size() * (index(rank()) + 1) / index(size());
    backend_->for_each(end - first,
                       detail::PeerReduction<T>{inputs<T>(first), outputs<T>(first), reduction});
  });
}

template <OrderedBackend B>
template <Element T>
void DeviceThreadCommunicator<B>::all_gather(In<T> in, std::span<T> out, Counts counts) {
  detail::check_all_gather<T>(in, out, counts, rank(), size());
  const Call call{.operation = Operation::all_gather,
                  .dtype = dtype_v<T>,
                  .elements = out.size(),
                  .counts = counts};
  exchange(call, {.in = in.data()}, [&] { collect(counts, out); });
}

template <OrderedBackend B>
template <Element T>
void DeviceThreadCommunicator<B>::reduce_scatter(In<T> in, std::span<T> out, Counts counts,
                                                 Reduction reduction) {
  const std::size_t begin = detail::check_reduce_scatter<T>(in, out, counts, rank(), size());
  const Call call{.operation = Operation::reduce_scatter,
                  .dtype = dtype_v<T>,
                  .reduction = reduction,
                  .elements = in.size(),
                  .counts = counts};
  exchange(call, {.in = in.data()}, [&] {
    detail::PeerPointers<T> mine;
    mine.add(out.data());
    backend_->for_each(out.size(), detail::PeerReduction<T>{inputs<T>(begin), mine, reduction});
  });
}

template <OrderedBackend B>
template <Element T>
void DeviceThreadCommunicator<B>::broadcast(std::span<T> data, int root) {
  detail::check_broadcast(root, size());
  const Call call{.operation = Operation::broadcast,
                  .dtype = dtype_v<T>,
                  .root = root,
                  .elements = data.size()};
  exchange(call, {.in = data.data()}, [&] { copy(in_of<T>(index(root)), data); });
}

template <OrderedBackend B>
template <Element T>
void DeviceThreadCommunicator<B>::gather(In<T> in, std::span<T> out, Counts counts, int root) {
  detail::check_gather<T>(in, out, counts, root, rank(), size());
  const Call call{.operation = Operation::gather,
                  .dtype = dtype_v<T>,
                  .root = root,
                  .elements = detail::total(counts),
                  .counts = counts};
  exchange(call, {.in = in.data()}, [&] {
    if (rank() == root) collect(counts, out);
  });
}

template <OrderedBackend B>
template <Element T>
void DeviceThreadCommunicator<B>::scatter(In<T> in, std::span<T> out, Counts counts, int root) {
  const std::size_t begin = detail::check_scatter<T>(in, out, counts, root, rank(), size());
  const Call call{.operation = Operation::scatter,
                  .dtype = dtype_v<T>,
                  .root = root,
                  .elements = detail::total(counts),
                  .counts = counts};
  exchange(call, {.in = in.data()}, [&] {
    if (!out.empty()) copy(in_of<T>(index(root)) + begin, out);
  });
}

template <OrderedBackend B>
template <Element T>
void DeviceThreadCommunicator<B>::all_to_all(In<T> in, Counts sent, std::span<T> out,
                                             Counts received) {
  detail::check_all_to_all<T>(in, sent, out, received, size());
  const Call call{.operation = Operation::all_to_all, .dtype = dtype_v<T>};
  const Card mine{.in = in.data(), .sent = sent.data(), .received = received.data()};
  std::string unequal;
  exchange(call, mine, [&] {
    const auto& cards = state_->cards;
    for (std::size_t from = 0; from < cards.size() && unequal.empty(); ++from)
      for (std::size_t to = 0; to < cards.size() && unequal.empty(); ++to)
        if (cards[from].sent[to] != cards[to].received[from])
          unequal = detail::describe_unequal(static_cast<int>(from), static_cast<int>(to),
                                             cards[from].sent[to], cards[to].received[from]);
    if (!unequal.empty()) return;
    for (std::size_t from = 0, begin = 0; from < cards.size(); begin += received[from++]) {
      const Counts theirs(cards[from].sent, cards.size());
      copy(in_of<T>(from) + detail::offset(theirs, rank()), out.subspan(begin, received[from]));
    }
  });
  if (!unequal.empty()) throw collective_error(unequal);
}

template <OrderedBackend B>
template <Element T>
void DeviceThreadCommunicator<B>::send(std::span<const T> data, int to, int tag) {
  detail::check_partner(Operation::send, "receiver", to, rank(), size());
  marks_of(rank()).ready.set();
  const detail::Letter letter{data.data(), data.size(), dtype_v<T>, tag};
  threads_.send(detail::bytes_of(letter), to);
  detail::Receipt receipt;
  threads_.receive(detail::writable_bytes_of(receipt), to);
  if (!receipt.accepted) detail::refuse_letter(letter.call(Operation::send, to), receipt.call);
  backend_->follow(marks_of(to).done);
}

template <OrderedBackend B>
template <Element T>
void DeviceThreadCommunicator<B>::receive(std::span<T> data, int from, int tag) {
  detail::check_partner(Operation::receive, "sender", from, rank(), size());
  detail::Letter letter;
  threads_.receive(detail::writable_bytes_of(letter), from);
  const detail::Letter mine{data.data(), data.size(), dtype_v<T>, tag};
  const Call call = mine.call(Operation::receive, from);
  const bool accepted = letter.fits(mine);
  if (accepted) {
    backend_->follow(marks_of(from).ready);
    copy(static_cast<const T*>(letter.data), data);
    marks_of(rank()).done.set();
  }
  threads_.send(detail::bytes_of(detail::Receipt{accepted, call}), from);
  if (!accepted) detail::refuse_letter(letter.call(Operation::send, rank()), call);
}

}  // namespace shardwise
