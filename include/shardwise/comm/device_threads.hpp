#pragma once
// Collectives between ranks that are threads of one process and have their tensors on devices whose
// memory all ranks can read: ranks that share one GPU, or several GPUs with peer access.

#include <concepts>
#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/collectives.hpp"
#include "shardwise/comm/detail/device_message.hpp"
#include "shardwise/comm/detail/device_sums.hpp"
#include "shardwise/comm/detail/mismatch.hpp"
#include "shardwise/comm/detail/peer_moves.hpp"
#include "shardwise/comm/gathered.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/comm/thread_communicator.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise {

/// A backend whose work can be ordered after the work of another one. Besides DeviceBackend it has
///
///     B::Event event(backend)             an event, like those of CUDA
///     event.record()                      records it after all work of its backend so far
///     backend.wait_for(event)             work of the backend from now on begins after the event
///     backend.enable_peer_access(event)   lets its kernels read and write memory of the event's
///                                         backend, or throws a backend_error that says why they
///                                         cannot
template <class B>
concept OrderedBackend = DeviceBackend<B> && requires(B& backend, typename B::Event& event) {
  requires std::constructible_from<typename B::Event, B&>;
  event.record();
  backend.wait_for(std::as_const(event));
  backend.enable_peer_access(std::as_const(event));
};

/// A rank among threads whose collectives take memory of its backend's device, and not of the host.
/// The kernels of a rank read the buffers of its peers directly, in rank order; only the records of
/// calls go through the host. It keeps the contract of `Communicator`, where "done" means **ordered
/// on the rank's stream**: work of the backend after a collective, a barrier too, begins after the
/// work of its peers before it, finds its result and may reuse its buffers. Errors, and what ends
/// the job, are as for `ThreadCommunicator`.
///
/// It differs from the contract in one point: send copies nothing and waits for its receiver. So of
/// two ranks that send to each other, one begins with receive; all_to_all does both at once.
///
/// Per rank and for n bytes on each, an all_reduce reads and writes n; everything else copies each
/// element once. In a collective the host threads wait for each other twice: before a rank reads
/// the buffer of a peer, and before a rank continues. Streams wait for each other's events; no host
/// thread waits for a device.
template <OrderedBackend B>
class DeviceThreadCommunicator : public detail::PeerMoves<DeviceThreadCommunicator<B>> {
 public:
  /// Its collectives take memory of the rank's device.
  static constexpr bool takes_device_memory = true;

  /// The rank of `threads`, which computes with `backend`; the backend outlives it. A collective.
  /// throws  argument_error for more than 32 ranks, backend_error if the backend's kernels cannot
  ///         reach a peer's memory
  DeviceThreadCommunicator(ThreadCommunicator threads, B& backend)
      : threads_(std::move(threads)), backend_(&backend), events_(make_events()) {}

  ///@{
  /// As `Communicator` says.
  int rank() const { return threads_.rank(); }
  int size() const { return threads_.size(); }
  DeviceThreadCommunicator split(int color, int key) {
    return {threads_.split(color, key), *backend_};
  }
  ///@}

  /// As the function `gathered` says; no device takes part.
  template <class T>
  std::vector<T> gathered(const T& mine) {
    return shardwise::gathered(threads_, mine);
  }

  /// Ranks always compare their calls.
  static constexpr bool compares_calls() { return true; }

 private:
  using Peers = detail::PeerMoves<DeviceThreadCommunicator>;
  friend Collectives<DeviceThreadCommunicator>;
  friend Peers;
  using Peers::index;
  using Peers::move;
  using Event = typename B::Event;
  using Record = detail::DeviceRecord;

  /// The same operation of all ranks.
  template <class Move>
  using OfAll = std::span<const Move* const>;

  /// Every rank holds those of all ranks, because it may use them after their owner has ended.
  struct Events {
    explicit Events(B& backend) : ready(backend), done(backend) {}
    Event ready;  // when the rank's buffers may be read and written
    Event done;   // when it has read and written those of others
    detail::Offer message;
  };

  using AllEvents = std::vector<std::shared_ptr<Events>>;

  std::shared_ptr<const AllEvents> make_events() {
    detail::require_few_ranks(size());
    auto events = std::make_shared<AllEvents>(index(size()));
    const auto mine = std::make_shared<Events>(*backend_);
    threads_.together(Call{Operation::split}, mine,
                      [&](OfAll<std::shared_ptr<Events>> all) noexcept {
                        for (std::size_t r = 0; r < all.size(); ++r) (*events)[r] = *all[r];
                      });
    for (const auto& peer : *events)
      if (peer != mine) backend_->enable_peer_access(peer->ready);
    return events;
  }

  Events& events_of(int rank) const { return *(*events_)[index(rank)]; }

  /// Gives all ranks a pointer to `mine` and calls run(the pointers of all) when the buffers of all
  /// ranks may be used. Work that follows is ordered after the work of the other ranks, also when
  /// run() throws, so that no memory is freed while another rank still reads it.
  template <class Move, class Run>
  void together(const Call& call, const Move& mine, const Run& run) {
    events_of(rank()).ready.record();
    std::exception_ptr failure;
    const auto attempt = [&](auto&& work) noexcept {
      try {
        work();
      } catch (...) {
        failure = std::current_exception();
      }
    };
    threads_.together(call, mine, [&](OfAll<Move> all) noexcept {
      attempt([&] {
        wait_for_peers(&Events::ready);
        run(all);
      });
      attempt([&] { events_of(rank()).done.record(); });
    });
    wait_for_peers(&Events::done);
    if (failure) std::rethrow_exception(failure);
  }

  void wait_for_peers(Event Events::*event) {
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank()) backend_->wait_for(events_of(peer).*event);
  }

  template <class T, class F>
  void with_peers(const Call& call, std::span<const T> mine, const F& f) {
    together(call, mine, [&](OfAll<std::span<const T>> all) {
      detail::PeerPointers<const T> pointers;
      for (const std::span<const T>* one : all) pointers.add(one->data());
      f(std::span<const T* const>(pointers.pointers.data(), pointers.count));
    });
  }

  template <class T>
  void copy(const T* from, std::span<T> to) {
    if (!to.empty()) detail::copy(*backend_, from, to.size(), to.data());
  }

  template <class T>
  void sum(std::span<const T* const> inputs, std::size_t first, std::span<T> out,
           Reduction reduction) {
    detail::PeerPointers<const T> from;
    for (const T* input : inputs) from.add(input + first);
    detail::PeerPointers<T> to;
    to.add(out.data());
    backend_->for_each(out.size(), detail::PeerReduction<T>{from, to, reduction});
  }

  int world_rank(int rank) const { return threads_.world_rank(rank); }

  /// Every rank reduces its share into the outputs of all ranks.
  template <class T>
  void move(const Call& call, const moves::AllReduce<T>& m) {
    together(call, m, [&](OfAll<moves::AllReduce<T>> all) {
      const std::size_t first = m.in.size() * index(rank()) / index(size());
      const std::size_t end = m.in.size() * (index(rank()) + 1) / index(size());
      detail::PeerPointers<const T> inputs;
      detail::PeerPointers<T> outputs;
      for (const auto* one : all) {
        inputs.add(one->in.data() + first);
        outputs.add(one->out.data() + first);
      }
      backend_->for_each(end - first, detail::PeerReduction<T>{inputs, outputs, m.reduction});
    });
  }

  template <class T>
  void move(const Call& call, const moves::Send<T>& m) {
    Events& mine = events_of(rank());
    mine.ready.record();
    mine.message.make();
    threads_.send_record(call, Record{Record::Kind::message, m.in.data()});
    Record reply;
    Call theirs;
    try {
      theirs = threads_.receive_record(call, reply);
    } catch (...) {
      if (!mine.message.take_back()) backend_->wait_for(events_of(m.to).done);
      throw;
    }
    if (reply.kind != Record::Kind::accepted) refuse_message(call, theirs);
    backend_->wait_for(events_of(m.to).done);
  }

  template <class T>
  void move(const Call& call, const moves::Receive<T>& m) {
    Record message;
    const Call sent = threads_.receive_record(call, message);
    const bool accepted = detail::is_same_message(sent, call);
    if (accepted) {
      Events& sender = events_of(m.from);
      const bool copied = sender.message.take([&] {
        backend_->wait_for(sender.ready);
        copy(static_cast<const T*>(message.data), m.out);
        events_of(rank()).done.record();
      });
      // The sender has failed, so that this throws.
      if (!copied) threads_.receive_record(call, message);
    }
    threads_.send_record(
        call, Record{accepted ? Record::Kind::accepted : Record::Kind::refused, nullptr});
    if (!accepted) refuse_message(call, sent);
  }

  [[noreturn]] void refuse_message(const Call& call, const Call& theirs) const {
    detail::refuse_message(world_rank(rank()), call, world_rank(call.root), theirs);
  }

  ThreadCommunicator threads_;
  B* backend_;
  std::shared_ptr<const AllEvents> events_;
};

}  // namespace shardwise
