#pragma once
// A device whose work is done by a thread of the simulator, later than it is asked for.

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "schedules/primitives.hpp"
#include "schedules/program.hpp"
#include "shardwise/comm/device_threads.hpp"
#include "shardwise/core/memory.hpp"

namespace schedules {

/// What DeviceThreadCommunicator asks of a backend, on a stream of its own in memory of the host.
/// The work of the stream is done in order, and other threads go on in the middle of a loop.
class SimulatedDevice {
 public:
  static constexpr bool sends_wait = true;

  SimulatedDevice() : stream_([this] { work(); }) {}
  SimulatedDevice(const SimulatedDevice&) = delete;
  SimulatedDevice& operator=(const SimulatedDevice&) = delete;
  ~SimulatedDevice() {
    later([this] { ends_ = true; });
    stream_.join();
  }

  /// As those of CUDA: a wait is for the last record before it, and for nothing if there is none.
  class Event {
   public:
    explicit Event(SimulatedDevice& device) : device_(device) {}
    void record() {
      device_.later([reached = reached_, number = ++recorded_] {
        *reached = number;
        sim::scheduler.notify_all(reached.get());
      });
    }

   private:
    friend SimulatedDevice;

    SimulatedDevice& device_;
    long recorded_ = 0;
    std::shared_ptr<long> reached_ = std::make_shared<long>(0);  // by the stream
  };

  void wait_for(const Event& event) {
    later([reached = event.reached_, number = event.recorded_] {
      while (*reached < number) sim::scheduler.wait(reached.get());
    });
  }
  void enable_peer_access(const Event&) {}

  template <class F>
  void for_each(std::size_t n, F f) {
    later([=] {
      for (std::size_t i = 0; i < n; ++i) {
        if (i == n / 2) sim::scheduler.point();
        f(i);
      }
    });
  }
  void fill(Values& values, float value) {
    for_each(values.size(), [to = values.data(), value](std::size_t i) { to[i] = value; });
  }

  /// Returns when all work so far is done.
  void finish() {
    sim::scheduler.point();
    while (done_ < asked_) sim::scheduler.wait(&done_);
  }

  ///@{
  /// For the concept; nothing here calls them.
  static shardwise::MemorySource& memory() { return shardwise::host_memory(); }
  static bool reaches(const void*) { return true; }
  template <class... Arguments>
  void reduce_each(const Arguments&...) {}
  template <class T>
  void to_host(const T*, std::size_t, T*) {}
  template <class T>
  void to_device(const T*, std::size_t, T*) {}
  ///@}

 private:
  void later(std::function<void()> task) {
    ++asked_;
    tasks_.push_back(std::move(task));
    sim::scheduler.notify_all(&tasks_);
    sim::scheduler.point();
  }

  void work() {
    while (!ends_) {
      while (tasks_.empty()) sim::scheduler.wait(&tasks_);
      tasks_.front()();
      tasks_.pop_front();
      ++done_;
      sim::scheduler.notify_all(&done_);
      sim::scheduler.point();
    }
  }

  std::deque<std::function<void()>> tasks_{};
  long asked_ = 0;
  long done_ = 0;
  bool ends_ = false;
  sim::thread stream_;  // begins when all else is there
};

}  // namespace schedules
