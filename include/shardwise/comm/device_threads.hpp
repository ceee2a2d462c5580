#pragma once
// Collectives between ranks that are threads of one process and keep their tensors on devices whose
// memory each of them reaches: ranks that share one GPU, or have several with peer access.

#include <concepts>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "shardwise/backend/tensor_memory.hpp"
#include "shardwise/comm/call.hpp"
#include "shardwise/comm/collectives.hpp"
#include "shardwise/comm/detail/checks.hpp"
#include "shardwise/comm/detail/device_letter.hpp"
#include "shardwise/comm/detail/device_sums.hpp"
#include "shardwise/comm/detail/quarrel.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/comm/thread_communicator.hpp"
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
class DeviceThreadCommunicator : public Collectives<DeviceThreadCommunicator<B>> {
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
  DeviceThreadCommunicator split(int color, int key) {
    return {threads_.split(color, key), *backend_};
  }
  ///@}

 private:
  friend Collectives<DeviceThreadCommunicator>;
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
  void collect(moves::Counts counts, std::span<T> out) {
    for (std::size_t r = 0, begin = 0; r < counts.size(); begin += counts[r++])
      copy(in_of<T>(r), out.subspan(begin, counts[r]));
  }

  /// Every rank reduces its share into everybody's output.
  template <class T>
  void move(const Call& call, const moves::AllReduce<T>& m) {
    exchange(call, {.in = m.in.data(), .out = m.out.data()}, [&] {
      const std::size_t first = m.in.size() * index(rank()) / index(size());
      const std::size_t end = m.in.size() * (index(rank()) + 1) / index(size());
      backend_->for_each(
          end - first, detail::PeerReduction<T>{inputs<T>(first), outputs<T>(first), m.reduction});
    });
  }

  template <class T>
  void move(const Call& call, const moves::AllGather<T>& m) {
    exchange(call, {.in = m.in.data()}, [&] { collect(m.counts, m.out); });
  }

  template <class T>
  void move(const Call& call, const moves::ReduceScatter<T>& m) {
    exchange(call, {.in = m.in.data()}, [&] {
      const std::size_t begin = detail::offset(m.counts, rank());
      detail::PeerPointers<T> mine;
      mine.add(m.out.data());
      backend_->for_each(m.out.size(),
                         detail::PeerReduction<T>{inputs<T>(begin), mine, m.reduction});
    });
  }

  template <class T>
  void move(const Call& call, const moves::Broadcast<T>& m) {
    exchange(call, {.in = m.out.data()}, [&] { copy(in_of<T>(index(m.root)), m.out); });
  }

  template <class T>
  void move(const Call& call, const moves::Gather<T>& m) {
    exchange(call, {.in = m.in.data()}, [&] {
      if (rank() == m.root) collect(m.counts, m.out);
    });
  }

  template <class T>
  void move(const Call& call, const moves::Scatter<T>& m) {
    exchange(call, {.in = m.in.data()}, [&] {
      const std::size_t begin = detail::offset(m.counts, rank());
      if (!m.out.empty()) copy(in_of<T>(index(m.root)) + begin, m.out);
    });
  }

  template <class T>
  void move(const Call& call, const moves::AllToAll<T>& m) {
    const Card mine{.in = m.in.data(), .sent = m.sent.data(), .received = m.received.data()};
    std::optional<detail::Unequal> unequal;
    exchange(call, mine, [&] {
      const auto& cards = state_->cards;
      unequal = detail::first_unequal(
          cards.size(), [&](std::size_t from, std::size_t to) { return cards[from].sent[to]; },
          [&](std::size_t to, std::size_t from) { return cards[to].received[from]; });
      for (std::size_t r = 0, begin = 0; !unequal && r < cards.size(); begin += m.received[r++]) {
        const moves::Counts theirs(cards[r].sent, cards.size());
        copy(in_of<T>(r) + detail::offset(theirs, rank()), m.out.subspan(begin, m.received[r]));
      }
    });
    if (!unequal) return;
    throw collective_error(detail::describe_unequal(*unequal, [](std::size_t r) { return r; }));
  }

  template <class T>
  void move(const Call& call, const moves::Send<T>& m) {
    marks_of(rank()).ready.set();
    threads_.send(detail::bytes_of(detail::Letter{m.in.data(), call}), m.to);
    detail::Receipt receipt;
    threads_.receive(detail::writable_bytes_of(receipt), m.to);
    if (!receipt.accepted) detail::refuse_letter(call, receipt.call);
    backend_->follow(marks_of(m.to).done);
  }

  template <class T>
  void move(const Call& call, const moves::Receive<T>& m) {
    detail::Letter letter;
    threads_.receive(detail::writable_bytes_of(letter), m.from);
    const bool accepted = letter.fits(call);
    if (accepted) {
      backend_->follow(marks_of(m.from).ready);
      copy(static_cast<const T*>(letter.data), m.out);
      marks_of(rank()).done.set();
    }
    threads_.send(detail::bytes_of(detail::Receipt{accepted, call}), m.from);
    if (!accepted) detail::refuse_letter(letter.call, call);
  }

  void move(const Call&, const moves::Barrier&) { threads_.barrier(); }

  ThreadCommunicator threads_;
  B* backend_;
  std::shared_ptr<State> state_;
};

}  // namespace shardwise
